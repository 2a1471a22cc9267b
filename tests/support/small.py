"""A small model and batches for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from holdfast.core.batch import Batch
from holdfast.core.model import Model


def small_model(last: Callable[[], nn.Module] = nn.Tanh) -> Model:
    """Three inputs, four features that come out of a layer `last`, three classes that all compete."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Linear(3, 4), last())
    model = Model(backbone, n_features=4, n_classes=3, setting="class")
    model.seen.announce(range(3), task=0)
    return model


def small_batch(n: int, *, seed: int = 0, task: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=rng)
    return Batch(x, torch.randint(3, (n,), generator=rng), torch.full((n,), task))
