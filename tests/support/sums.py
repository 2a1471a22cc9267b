"""Learners of the methods whose state is a sum, and samples for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from holdfast import Learner
from holdfast.methods._sums import SumsMethod
from tests.support.bare import bare

N_FEATURES, N_CLASSES = 6, 4
METHODS: dict[str, dict[str, Any]] = {
    "ncm": {"method": "ncm"},
    "ncm euclidean": {"method": "ncm", "distance": "euclidean"},
    "slda": {"method": "slda"},
    "slda powered": {"method": "slda", "power": 0.5},
    "analytic": {"method": "analytic"},
    "analytic fixed": {"method": "analytic", "ridge": 0.5},
    "analytic recursive": {"method": "analytic", "ridge": 0.5, "form": "recursive"},
    "analytic projected": {"method": "analytic", "width": 20},
    "randumb": {"method": "randumb", "width": 20},
}


def made(n: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(N_CLASSES, (n,), generator=rng)
    return torch.randn(n, N_FEATURES, generator=rng) + 2 * torch.eye(N_FEATURES)[y], y


def learner_of(name: str, **more: Any) -> Learner:
    return bare(**{"backbone": "identity", "n_classes": N_CLASSES, **METHODS[name], **more})


def learned(name: str, x: Tensor, y: Tensor, size: int = 10, **more: Any) -> Learner:
    learner = learner_of(name, **more)
    for part_x, part_y in zip(torch.split(x, size), torch.split(y, size), strict=True):
        learner.observe(part_x, part_y)
    return learner


def method_of(learner: Learner) -> SumsMethod:
    assert isinstance(learner.method, SumsMethod)
    return learner.method


class Breaking(nn.Module):
    """Features that overflow for large inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(100 * x)
