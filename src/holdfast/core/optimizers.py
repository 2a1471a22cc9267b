"""Optimisers by name, and how their state follows a head that grows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.core.state import State, Stateful

OptimizerName = Literal["sgd", "adam", "adamw"]
VELOCITY = "momentum_buffer"  # torch's name for it


class SGD(Stateful):
    """Gradient descent with momentum: to the bit that of `torch.optim.SGD`, whose saved state it reads too.

    Any optimiser of torch's own imports its compiler once it is made, more than a second and some 70 MB for each
    process, and nothing of that is used here.
    """

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, momentum: float = 0.0) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr, "momentum": momentum}]
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.param_groups.append({**self.param_groups[0], **param_group})

    def zero_grad(self) -> None:
        for parameter in parameters_of(self):
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            steps = [parameter.grad for parameter in moved]
            if group["momentum"]:
                steps = [self._velocity(parameter, group["momentum"]) for parameter in moved]
            if moved:
                torch._foreach_add_(moved, steps, alpha=-group["lr"])

    def state_dict(self) -> State:
        place = {parameter: i for i, parameter in enumerate(parameters_of(self))}
        groups = [{**group, "params": [place[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": {place[p]: kept for p, kept in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state: State) -> None:
        parameters = parameters_of(self)
        if [len(g["params"]) for g in state["param_groups"]] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError("the saved state is of an optimiser of other parameters")
        for group, saved in zip(self.param_groups, state["param_groups"], strict=True):
            group |= {name: float(saved[name]) for name in ("lr", "momentum")}
        self.state = {}
        for i, kept in state["state"].items():
            if kept[VELOCITY].shape != parameters[i].shape:
                raise ValueError(f"the saved momentum {i} has the shape of another parameter")
            self.state[parameters[i]] = {VELOCITY: kept[VELOCITY].to(parameters[i])}

    def _velocity(self, parameter: Tensor, momentum: float) -> Tensor:
        """The running sum of the parameter's gradients, its last one included."""
        assert parameter.grad is not None
        kept = self.state.setdefault(parameter, {})
        if VELOCITY in kept:
            kept[VELOCITY].mul_(momentum).add_(parameter.grad)
        else:
            kept[VELOCITY] = parameter.grad.clone()
        return kept[VELOCITY]


Optimizer = torch.optim.Optimizer | SGD


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All that it learns, in its order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def make_optimizer(name: OptimizerName, model: nn.Module, *, lr: float, momentum: float = 0.0) -> Optimizer:
    """The optimiser `name` over all parameters; momentum counts for sgd only."""
    if name == "sgd":
        return SGD(model.parameters(), lr=lr, momentum=momentum)
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
