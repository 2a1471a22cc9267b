"""Optimisers by name, and how their state follows a head that grows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.core.state import State, Stateful, check_tensor
from holdfast.core.undo import Undo

OptimizerName = Literal["sgd", "adam", "adamw"]
MAX_RATE = 1e6  # a saved learning rate beyond is none
VELOCITY = "momentum_buffer"  # torch's name for it


class SGD(Stateful):
    """Gradient descent with momentum: to the bit that of `torch.optim.SGD`, whose saved state it reads too.

    Every optimiser of torch imports torch's compiler when it is made. That costs more than a second and some 70 MB a
    process, and nothing of it is used here.

    Attributes:
        swaps: the first step of a transaction makes new weights, which then take the place of the old ones. So the old
            ones are still there if the transaction fails, and nothing is copied. New weights are written over their
            gradients. It requires that only steps change weights, that nobody else holds on to their tensors, and that
            nobody reads a gradient after the step.
    """

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, momentum: float = 0.0) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr, "momentum": momentum}]
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self.swaps = False
        self._swaps_next = False

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
            if self._swaps_next:
                for parameter, step in zip(moved, steps, strict=True):
                    room = _room(parameter)
                    parameter.grad = None
                    parameter.data = torch.add(parameter, step, alpha=-group["lr"], out=room)
            elif moved:
                torch._foreach_add_(moved, steps, alpha=-group["lr"])
        self._swaps_next = False

    def keep_for_undo(self, undo: Undo) -> None:
        undo.attributes(self)
        undo.entries(self.state)
        for kept in self.state.values():
            undo.entries(kept)
        for group in self.param_groups:
            undo.entries(group)
        if self.swaps:
            undo.keep_places(parameters_of(self))
            self._swaps_next = True

    def state_dict(self) -> State:
        place = {parameter: i for i, parameter in enumerate(parameters_of(self))}
        groups = [{**group, "params": [place[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": {place[p]: kept for p, kept in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state: State) -> None:
        parameters = parameters_of(self)
        if [len(g["params"]) for g in state["param_groups"]] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError("the saved state is of an optimiser of other parameters")
        for group, saved in zip(self.param_groups, state["param_groups"], strict=True):
            group |= {name: _number(saved[name], name) for name in ("lr", "momentum")}
        self.state = {}
        for i, kept in state["state"].items():
            if not _is_place(i, parameters) or VELOCITY not in kept:
                raise ValueError(f"the saved momentum {i!r} is of no parameter")
            _check_beside(kept[VELOCITY], parameters[i], f"the saved momentum {i}")
            self.state[parameters[i]] = {VELOCITY: kept[VELOCITY].to(parameters[i])}

    def _velocity(self, parameter: Tensor, momentum: float) -> Tensor:
        """Return the running sum of the parameter's gradients, its last one included."""
        assert parameter.grad is not None
        kept = self.state.setdefault(parameter, {})
        before = kept.get(VELOCITY)
        kept[VELOCITY] = parameter.grad.clone() if before is None else (momentum * before).add_(parameter.grad)
        return kept[VELOCITY]


def _room(parameter: Tensor) -> Tensor | None:
    """Return the gradient, if its memory is laid out as that of the parameter and is no part of a larger one."""
    gradient = parameter.grad
    assert gradient is not None
    fits = gradient.stride() == parameter.stride() and gradient.untyped_storage().nbytes() == gradient.nbytes
    return gradient if fits else None


Optimizer = torch.optim.Optimizer | SGD


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """Return all parameters that an optimiser learns, in its order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def n_moments(optimizer: Optimizer) -> int:
    """Return how many tensors the optimiser keeps beside each weight."""
    if isinstance(optimizer, SGD):
        return int(any(group["momentum"] for group in optimizer.param_groups))
    return 2  # of Adam


def make_optimizer(name: OptimizerName, model: nn.Module, *, lr: float, momentum: float = 0.0) -> Optimizer:
    """Return the optimiser `name` over all parameters; momentum counts for sgd only."""
    if name == "sgd":
        return SGD(model.parameters(), lr=lr, momentum=momentum)
    if name == "adam":
        return torch.optim.Adam(model.parameters(), lr=lr)
    return torch.optim.AdamW(model.parameters(), lr=lr)


def like_optimizer(optimizer: Optimizer, parameters: Sequence[Tensor], *, share: float) -> Optimizer:
    """Return a new optimiser of the same kind for `parameters`, with a share of the learning rate and no momentum."""
    lr = share * optimizer.param_groups[0]["lr"]
    if isinstance(optimizer, SGD):
        return SGD(parameters, lr=lr)
    made: torch.optim.Optimizer = type(optimizer)(parameters, lr=lr)  # type: ignore[call-arg]
    return made


def check_groups(optimizer: Optimizer, saved: Any) -> None:
    """Raise ValueError if `saved` is not of an optimiser of torch's own like this one, which takes what it is given."""
    if isinstance(optimizer, SGD):
        return  # which checks for itself
    now = optimizer.state_dict()["param_groups"]
    if not isinstance(saved, dict) or not isinstance(saved.get("state"), dict):
        raise ValueError("the saved state is of no optimiser")
    groups = saved.get("param_groups")
    if not isinstance(groups, list) or len(groups) != len(now):
        raise ValueError("the saved state is of an optimiser of other parameters")
    for group, expected in zip(groups, now, strict=True):
        if not isinstance(group, dict) or group.keys() != expected.keys():
            raise ValueError("the saved state is of another kind of optimiser")
        for name, value in group.items():
            if name in ("lr", "eps", "weight_decay"):
                _number(value, name)
            elif name == "betas":
                [_number(beta, "momentum") for beta in value]
            elif value != expected[name]:
                raise ValueError(f"the saved optimiser has {name}={value!r}, not {expected[name]!r}")
        if len(group.get("betas", ())) != len(expected.get("betas", ())):
            raise ValueError(f"the saved optimiser has the betas {group['betas']}")


def check_moments(optimizer: Optimizer, saved: Any) -> None:
    """Raise ValueError if moments that torch's own optimiser was given are not of its parameters as they are now."""
    if isinstance(optimizer, SGD):
        return
    parameters, names = parameters_of(optimizer), {"step", "exp_avg", "exp_avg_sq"}
    for i, kept in saved["state"].items():
        if not _is_place(i, parameters) or not isinstance(kept, dict) or kept.keys() != names:
            raise ValueError(f"the saved moments {i!r} are of no parameter")
        for name in ("exp_avg", "exp_avg_sq"):
            _check_beside(kept[name], parameters[i], f"the saved moment {name} of parameter {i}")
        _check_beside(kept["step"], torch.zeros(()), f"the saved step of parameter {i}")
        if kept["step"] < 0 or (kept["exp_avg_sq"] < 0).any():
            raise ValueError(f"the saved moments {i} are below 0")


def _is_place(i: Any, parameters: list[Tensor]) -> bool:
    return type(i) is int and 0 <= i < len(parameters)


def _number(value: Any, name: str) -> float:
    """Return a checked rate: 0 or more, a momentum below 1."""
    allowed = isinstance(value, float | int) and 0 <= value < (1 if name == "momentum" else MAX_RATE)
    if not allowed:
        raise ValueError(f"the saved optimiser has {name}={value!r}")
    return float(value)


def _check_beside(kept: Any, parameter: Tensor, name: str) -> None:
    if isinstance(kept, Tensor) and kept.shape != parameter.shape:
        raise ValueError(f"{name} has the shape of another parameter")
    check_tensor(kept, like=parameter, name=name)


def grow_optimizer(optimizer: Optimizer) -> None:
    """Pad what is kept beside each parameter (momentum, moments) with zeros to the parameter's new rows."""
    for parameter, kept in optimizer.state.items():
        for name, value in kept.items():
            if isinstance(value, Tensor) and value.shape[1:] == parameter.shape[1:] and value.ndim:
                missing = len(parameter) - len(value)
                kept[name] = torch.cat([value, value.new_zeros(missing, *value.shape[1:])])
