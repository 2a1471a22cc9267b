"""Optimisers by name, and how their state follows a head that grows."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

OptimizerName = Literal["sgd", "adam", "adamw"]


def make_optimizer(name: OptimizerName, model: nn.Module, *, lr: float, momentum: float = 0.0) -> Optimizer:
    """The optimiser `name` over all parameters; momentum counts for sgd only."""
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    if name == "adam":
        return torch.optim.Adam(model.parameters(), lr=lr)
    return torch.optim.AdamW(model.parameters(), lr=lr)


def grow_optimizer(optimizer: Optimizer) -> None:
    """Pad what is kept beside each parameter (momentum, moments) with zeros to the parameter's new rows."""
    for parameter, kept in optimizer.state.items():
        for name, value in kept.items():
            if isinstance(value, Tensor) and value.shape[1:] == parameter.shape[1:] and value.ndim:
                missing = len(parameter) - len(value)
                kept[name] = torch.cat([value, value.new_zeros(missing, *value.shape[1:])])
