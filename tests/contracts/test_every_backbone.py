"""What every network has to hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast import Learner, load_learner
from holdfast.parts import find, names
from holdfast.settings import options_of
from tests.support.weights import needs_weights

SHAPE = (3, 32, 32)
PRETRAINED = pytest.param({"name": "efficientnet_lite0", "pretrained": True}, marks=needs_weights, id="pretrained")


HALVED = [name for name in names("backbones") if "precision" in options_of("backbones", name)]
IN_BFLOAT16 = [pytest.param({"name": name, "precision": "bfloat16"}, id=f"{name}-bfloat16") for name in HALVED]


@pytest.mark.parametrize("backbone", [*names("backbones"), PRETRAINED, *IN_BFLOAT16])
def test_a_learner_saved_half_way_goes_on_to_the_same_bits(backbone: str | dict[str, Any], tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(0, 256, (4, 6, *SHAPE), dtype=torch.uint8, generator=generator)
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    learner = Learner("drr", backbone=backbone, memory=12, replay_size=4, lr=0.01, average=0.9)
    for step in (0, 1):
        learner.observe(x[step], y)
    learner.save(tmp_path / "learner")
    restored = load_learner(tmp_path / "learner")
    for step in (2, 3):
        assert restored.observe(x[step], y) == learner.observe(x[step], y)
    assert torch.equal(restored.scores(x[0]), learner.scores(x[0]))


@pytest.mark.parametrize("retrieval", names("retrievals"))
@pytest.mark.parametrize("selection", names("selections"))
def test_every_selection_and_retrieval_takes_a_backbone_in_bfloat16(selection: str, retrieval: str) -> None:
    x = torch.randint(0, 256, (4, 6, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    learner = Learner(
        "er",
        backbone={"name": "reduced_resnet18", "width": 8, "precision": "bfloat16"},
        setting="task",
        memory=9,
        selection=selection,
        retrieval=retrieval,
        replay_size=4,
    )
    for step, images in enumerate(x):  # two batches a task, and the second finds memory full
        learner.observe(images, torch.arange(6) % 3 + 3 * (step // 2), step // 2)
        if step % 2:
            learner.end_task()
    assert learner.memory is not None
    assert 6 <= len(learner.memory) <= 9  # where classes have shares, one each


@pytest.mark.parametrize("name", HALVED)
def test_in_bfloat16_the_features_are_those_of_float32_but_for_rounding(name: str) -> None:
    backbones = []
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        backbones.append(
            find("backbones", name)(SHAPE, precision=precision).eval()
        )  # statistics of a batch blow rounding up
    x = torch.rand(8, *SHAPE)
    exact, rounded = (backbone(x) for backbone in backbones)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    error = (rounded - exact).norm() / exact.norm()
    assert error < 0.03  # a bfloat16 has 8 bits, and rounding adds up over the layers
    rounded.square().mean().backward()
    for parameter in backbones[1].parameters():
        assert parameter.dtype == parameter.grad.dtype == torch.float32
