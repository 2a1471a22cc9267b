"""Contracts of a backbone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.build import make
from holdfast.checks._base import Check, Failed, expect
from holdfast.learner import Learner
from holdfast.loading import load_learner
from holdfast.settings import Part

SHAPES = ((8,), (3, 32, 32))  # tried in turn where the user names none
CLOSE = 1e-4  # of features that are computed in batches of other sizes


def backbone_checks(part: Part, input_shape: tuple[int, ...] | None = None) -> Iterator[Check]:
    """Yield the checks of a backbone for samples of `input_shape`; without it, vectors and pictures are tried."""
    shape = input_shape or _accepted(part)
    for sentence, function in (
        ("n_features is the width of its features", check_width),
        ("every weight gets a gradient", check_gradients),
        ("when predicting, a sample's features do not depend on its batch", check_independence),
    ):
        yield Check(sentence, lambda _, function=function: function(part, shape))  # type: ignore[misc]
    yield Check("a saved learner continues with the same bits", partial(check_backbone_saving, part, shape))


def check_width(part: Part, shape: tuple[int, ...]) -> None:
    """Check that features are finite float32 numbers of shape (n, n_features), for one sample too."""
    backbone = _built(part, shape)
    for n in (1, 4):
        features = backbone(_inputs(n, shape))
        expect(
            tuple(features.shape) == (n, backbone.n_features),
            f"features of {n} samples have shape {tuple(features.shape)}, and n_features is {backbone.n_features}",
        )
        expect(features.dtype == torch.float32, f"features are {features.dtype}, not torch.float32")
        expect(bool(torch.isfinite(features).all()), "features are NaN or infinite")


def check_gradients(part: Part, shape: tuple[int, ...]) -> None:
    """Check that the gradient of features reaches all weights that are learned."""
    backbone = _built(part, shape)
    if getattr(backbone, "frozen", False):
        return
    weights = {name: each for name, each in backbone.named_parameters() if each.requires_grad}
    if not weights:
        return
    backbone(_inputs(4, shape)).square().sum().backward()
    without = [name for name, each in weights.items() if each.grad is None]
    expect(not without, f"no gradient reaches {', '.join(without[:4])}")


def check_independence(part: Part, shape: tuple[int, ...]) -> None:
    """Check that in evaluation mode, features of a sample are the same alone and in a batch, but for rounding."""
    backbone = _built(part, shape).eval()
    x = _inputs(4, shape)
    with torch.no_grad():
        together, alone = backbone(x), torch.cat([backbone(each[None]) for each in x])
    error = ((together - alone).norm() / together.norm().clamp(min=1e-12)).item()
    expect(error <= CLOSE, f"features differ by a share of {error:.2g} when samples come alone")


def check_backbone_saving(part: Part, shape: tuple[int, ...], folder: Path) -> None:
    """Check that a learner with the backbone that is saved half-way goes on to the same bits."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(0, 256, (4, 6, *shape), dtype=torch.uint8, generator=generator)
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    settings: dict[str, Any] = {"memory": 12, "replay_size": 4, "lr": 0.01, "average": 0.9}
    learner = Learner("drr", backbone=part.model_dump(), **settings)
    for step in (0, 1):
        learner.observe(x[step], y)
    learner.save(folder / "learner")
    restored = load_learner(folder / "learner", trust_code=True)
    for step in (2, 3):
        losses = restored.observe(x[step], y), learner.observe(x[step], y)
        expect(losses[0] == losses[1], f"the loaded learner has the loss {losses[0]}, the other one {losses[1]}")
    expect(torch.equal(restored.scores(x[0]), learner.scores(x[0])), "the loaded learner scores otherwise")


def _accepted(part: Part) -> tuple[int, ...]:
    errors = []
    for shape in SHAPES:
        try:
            _built(part, shape)(_inputs(2, shape))
        except Exception as error:  # a network may refuse a shape in any way
            errors.append(f"{shape}: {error}")
        else:
            return shape
    raise Failed(f"the backbone takes neither vectors nor pictures: give --input-shape ({'; '.join(errors)})")


def _built(part: Part, shape: tuple[int, ...]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built: nn.Module = make("backbones", part, shape)
    return built


def _inputs(n: int, shape: tuple[int, ...]) -> Tensor:
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(0))
