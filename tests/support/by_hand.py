"""What tests of methods that combine gradients share: a method around a small model, and a step by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.core.optimizers import make_optimizer
from holdfast.memory.retrieval.uniform import Uniform
from holdfast.memory.selection.reservoir import Reservoir
from holdfast.memory.storage import Memory
from holdfast.methods._base import ReplayMethod

LR = 0.1


def built(kind: type[ReplayMethod], model: Model, **options: Any) -> Any:
    parts = {"memory": Memory(100), "selection": Reservoir(), "retrieval": Uniform()}
    return kind(model=model, optimizer=make_optimizer("sgd", model, lr=LR), **parts, **options)


def gradient_by_hand(model: Model, batch: Batch) -> Tensor:
    """(n,) by `backward`, parameter by parameter."""
    model.zero_grad()
    model.loss(batch).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def weights(model: Model) -> Tensor:
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def opposed(batch: Batch) -> Batch:
    """The same samples with other classes, so that learning one forgets the other."""
    return Batch(batch.x, (batch.y + 1) % 3, batch.task)
