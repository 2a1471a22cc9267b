"""Exact save and restore: every attribute is state, and what cannot be saved raises at once."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

Plain = None | bool | int | float | str
State = dict[str, Any]  # a tree of dicts, lists and tuples whose leaves are Plain or tensors


class Stateful:
    """Saves and restores all attributes.

    Attributes that are themselves Stateful, modules, optimisers or generators are restored in place, so
    that references to them stay valid; everything else is replaced by what was saved. What can be worked out again
    from the rest is named in `derived` and left out; fields of a dataclass among it begin anew. An option of a
    dataclass that was not there yet when the state was saved stays as the object was built with it.
    """

    derived: ClassVar[frozenset[str]] = frozenset()

    def state_dict(self) -> State:
        owner = type(self).__name__
        return {
            name: _saved(value, f"{owner}.{name}") for name, value in vars(self).items() if name not in self.derived
        }

    def load_state_dict(self, state: State) -> None:
        current = {name: value for name, value in vars(self).items() if name not in self.derived}
        missing = sorted(set(current) - set(state) - _options(self))
        unknown = sorted(set(state) - set(current))
        if missing or unknown:
            raise ValueError(
                f"the saved state is not of this {type(self).__name__}: "
                f"missing {missing}, unknown {unknown}; load it with the version that saved it"
            )
        for name, saved in state.items():
            object.__setattr__(self, name, _restored(current[name], saved, f"{type(self).__name__}.{name}"))
        for name, first in _first_values(self).items():
            object.__setattr__(self, name, first)


def _options(stateful: Stateful) -> set[str]:
    """The fields of a dataclass that are given plain values when it is built."""
    if not is_dataclass(stateful):
        return set()
    return {f.name for f in fields(stateful) if f.init and isinstance(getattr(stateful, f.name), Plain)}


def _first_values(stateful: Stateful) -> dict[str, Any]:
    """What the derived fields of a dataclass are when it is built."""
    if not is_dataclass(stateful):
        return {}
    derived = [f for f in fields(stateful) if f.name in stateful.derived]
    return {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in derived}


def _saved(value: Any, path: str) -> Any:
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, Stateful | nn.Module | torch.optim.Optimizer):
        return _plain_tree(value.state_dict(), path)
    return _plain_tree(value, path)


def _plain_tree(value: Any, path: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {_plain_key(key, path): _plain_tree(item, f"{path}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_tree(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return tuple(_plain_tree(item, f"{path}[{i}]") for i, item in enumerate(value))
    raise TypeError(
        f"{path} is a {type(value).__name__}, which cannot be saved exactly: "
        "keep numbers, strings, tensors, generators, modules, optimisers or Stateful objects"
    )


def _plain_key(key: Any, path: str) -> Any:
    return _plain_tree(key, f"{path} key {key!r}")


def _restored(current: Any, saved: Any, path: str) -> Any:
    if isinstance(current, torch.Generator):
        current.set_state(saved)
        return current
    if isinstance(current, Stateful | nn.Module | torch.optim.Optimizer):
        # A copy: an optimiser keeps the tensors that it is given.
        current.load_state_dict(_copied(saved))
        return current
    if isinstance(current, Tensor) and isinstance(saved, Tensor):
        return saved.to(current.device, copy=True)
    if not _same_kind(current, saved):
        raise ValueError(f"{path} was saved as a {type(saved).__name__}, but here it is a {type(current).__name__}")
    return _copied(saved)


def _same_kind(current: Any, saved: Any) -> bool:
    """Whether a saved value can stand where the current one is.

    None is what is not there yet. A dict in its place may be the state of an object, which cannot be made here.
    """
    numbers = (bool, int, float)
    return (
        saved is None
        or (current is None and not isinstance(saved, dict))
        or type(current) is type(saved)
        or (isinstance(current, numbers) and isinstance(saved, numbers))
    )


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(item) for item in value)
    return value
