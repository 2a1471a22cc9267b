"""Exact save and restore: every attribute is state, and what cannot be saved raises at once.

A state may come from a stranger's file. A restored value must have the type that its class declares. `load_state_dict`
of the class checks all other conditions, and raises ValueError.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, get_type_hints

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from torch import Tensor, nn

from holdfast.core.options import OPTION_CONFIG
from holdfast.core.undo import ATOMIC, Undo

Plain = None | bool | int | float | str
State = dict[str, Any]  # a tree of dicts, lists and tuples whose leaves are Plain or tensors
Count = Annotated[int, Field(ge=0, lt=2**63)]  # a number of things, as an attribute declares it

_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
_MERSENNE_NUMBERS = 624  # that torch's generator on a CPU makes at once
_MERSENNE_BYTES = 5056  # of its state


class Stateful:
    """Saves and restores all attributes.

    Attributes that are themselves Stateful, modules, optimisers or generators are restored in place, so
    that references to them stay valid; everything else is replaced by what was saved. What can be worked out again
    from the rest is named in `derived` and left out; fields of a dataclass among it begin anew. An option of a
    dataclass that was not there yet when the state was saved stays as the object was built with it.

    A value that is restored has to be of the type that the class declares for the attribute, if it declares one.

    Example:
        >>> class Counter(Stateful):
        ...     def __init__(self):
        ...         self.n, self.rng = 0, torch.Generator().manual_seed(1)
        >>> counter, other = Counter(), Counter()
        >>> counter.n, _ = 3, torch.rand(5, generator=counter.rng)
        >>> other.load_state_dict(counter.state_dict())
        >>> other.n, bool(torch.rand(1, generator=other.rng) == torch.rand(1, generator=counter.rng))
        (3, True)
    """

    derived: ClassVar[frozenset[str]] = frozenset()
    # Attributes whose values are replaced and never written over, or that write down in `Undo` what they write over.
    replaced: ClassVar[frozenset[str]] = frozenset()

    def keep_for_undo(self, undo: Undo) -> None:
        """Write down, before a transaction, what it may change; fields that are derived begin anew if it fails."""
        kind: Any = type(self)
        anew = _anew(kind)
        if anew:
            undo.afterwards(lambda: _begin_anew(self, anew))
        undo.attributes(self)
        replaced = self.replaced
        for name, value in vars(self).items():
            if type(value) not in ATOMIC and name not in replaced and name not in anew:
                undo.keep(value)

    def state_dict(self) -> State:
        return self.saved()

    def saved(self, *, but: Collection[str] = ()) -> State:
        """Return the state without the attributes that `but` names, which are not looked at."""
        owner, left_out = type(self).__name__, {*self.derived, *but}
        return {name: _saved(value, f"{owner}.{name}") for name, value in vars(self).items() if name not in left_out}

    def load_state_dict(self, state: State) -> None:
        if not isinstance(state, dict):
            raise ValueError(f"the saved state of a {type(self).__name__} is a {type(state).__name__}, not a dict")
        current = {name: value for name, value in vars(self).items() if name not in self.derived}
        missing = sorted(set(current) - set(state) - _options(self))
        unknown = sorted(set(state) - set(current), key=str)
        if missing or unknown:
            raise ValueError(
                f"the saved state is not of this {type(self).__name__}: "
                f"missing {missing}, unknown {unknown}; load it with the version that saved it"
            )
        for name, saved in state.items():
            path = f"{type(self).__name__}.{name}"
            if not isinstance(current[name], _IN_PLACE):
                _check_declared(type(self), name, saved, path)
            object.__setattr__(self, name, _restored(current[name], saved, path))
        for name, first in _first_values(self).items():
            object.__setattr__(self, name, first)


def _options(stateful: Stateful) -> set[str]:
    """Return the fields of a dataclass that are given plain values when it is built."""
    if not is_dataclass(stateful):
        return set()
    return {f.name for f in fields(stateful) if f.init and isinstance(getattr(stateful, f.name), Plain)}


def _first_values(stateful: Stateful) -> dict[str, Any]:
    """Return the initial values of the derived fields of a dataclass."""
    if not is_dataclass(stateful):
        return {}
    derived = [f for f in fields(stateful) if f.name in stateful.derived]
    return {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in derived}


@cache
def _anew(kind: Any) -> frozenset[str]:
    """Return the fields of a dataclass that are derived and may be written over."""
    named: frozenset[str] = kind.derived - kind.replaced
    return frozenset(f.name for f in fields(kind) if f.name in named) if is_dataclass(kind) else frozenset()


def _begin_anew(stateful: Stateful, names: Iterable[str]) -> None:
    first = _first_values(stateful)
    for name in names:
        object.__setattr__(stateful, name, first[name])


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


def restore_generator(generator: torch.Generator, saved: Any) -> None:
    """Set the state of a generator to a saved one; raise ValueError if it is none.

    Torch checks less: a state whose two positions contradict each other makes it read beyond its numbers.
    """
    expected = generator.get_state()
    if not isinstance(saved, Tensor) or saved.dtype != expected.dtype or saved.shape != expected.shape:
        raise ValueError(f"the saved state of a generator is not {len(expected)} bytes")
    if generator.device.type == "cpu" and len(saved) == _MERSENNE_BYTES:
        n_left, n_taken = struct.unpack_from("<8xi4xQ", saved.numpy().tobytes())
        untouched = (n_left, n_taken) == (1, 0)
        if not untouched and not (1 <= n_left <= _MERSENNE_NUMBERS and n_left + n_taken == _MERSENNE_NUMBERS + 1):
            raise ValueError(f"the saved state of a generator has {n_left} numbers left and {n_taken} taken")
    generator.set_state(saved)


def check_module(module: nn.Module, saved: Any, name: str = "the saved module") -> None:
    """Raise ValueError unless `saved` has the tensors of `module`, with whatever number of rows, and finite weights."""
    expected = module.state_dict()
    if not isinstance(saved, dict) or saved.keys() != expected.keys():
        raise ValueError(f"{name} does not have the parts of a {type(module).__name__}")
    parameters = {key for key, _ in module.named_parameters()}
    for key, tensor in expected.items():
        if isinstance(tensor, Tensor):
            check_tensor(saved[key], like=tensor, name=f"{name}, {key},", finite=key in parameters)
        if key.endswith("running_var") and bool((saved[key] < 0).any()):
            raise ValueError(f"{name}, {key}, has a variance below 0")


def check_tensor(saved: Any, *, like: Tensor, name: str, finite: bool = True) -> None:
    """Raise ValueError unless `saved` is a tensor that can stand for `like`, with whatever number of rows."""
    if not isinstance(saved, Tensor):
        raise ValueError(f"{name} is a {type(saved).__name__}, not a tensor")
    same_kind = saved.dtype == like.dtype or (saved.is_floating_point() and like.is_floating_point())
    if not same_kind or saved.ndim != like.ndim or saved.shape[1:] != like.shape[1:]:
        raise ValueError(
            f"{name} is {saved.dtype} of shape {tuple(saved.shape)}, not {like.dtype} of shape {tuple(like.shape)}"
        )
    if finite and not is_finite(saved):
        raise ValueError(f"{name} has numbers that are NaN or infinite")


def is_finite(tensor: Tensor) -> bool:
    """Return True if no number is NaN or infinite."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    low, high = (extreme.item() for extreme in tensor.aminmax())
    return -math.inf < low and high < math.inf  # NaN is neither


def are_finite(tensors: list[Tensor]) -> bool:
    """Return True if no number in these tensors is NaN or infinite; several times faster than to ask for each."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    if not floats:
        return True
    # A sum is NaN or infinite if a part is; the sum of large numbers may be infinite by itself.
    with torch.no_grad():
        total = sum([tensor.sum().item() for tensor in floats])
    return math.isfinite(total) or all(map(is_finite, floats))


def _check_declared(owner: type, name: str, saved: Any, path: str) -> None:
    """Raise ValueError if a saved value is not of the type that the class `owner` declares for its attribute `name`."""
    adapter = _declared(owner, name)
    if adapter is None:
        return
    try:
        adapter.validate_python(saved)
    except ValidationError as error:
        raise ValueError(f"{path} was saved as {_short(saved)}: {error.errors()[0]['msg']}") from error


@cache
def _declared(owner: type, name: str) -> TypeAdapter[Any] | None:
    """Return the validator of an attribute's declared type, or None if the type cannot be checked."""
    is_option = is_dataclass(owner) and any(each.name == name and each.init for each in fields(owner))
    try:
        hints = get_type_hints(owner, include_extras=True)
        config = OPTION_CONFIG if is_option else _STRICT  # the range of an option is that of settings
        return TypeAdapter(hints[name], config=config) if name in hints else None
    except (NameError, PydanticUserError):  # of a class made inside a function; of a type that is no plain one
        return None


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, Plain) else type(value).__name__
    return text if len(text) <= 50 else f"{text[:50]}…"


_IN_PLACE = Stateful | nn.Module | torch.optim.Optimizer | torch.Generator  # keep their identity when restored


def _restored(current: Any, saved: Any, path: str) -> Any:
    if isinstance(current, torch.Generator):
        restore_generator(current, saved)
        return current
    if isinstance(current, nn.Module):
        if not isinstance(saved, dict):
            raise ValueError(f"{path} was saved as a {type(saved).__name__}, not as a module")
        # It copies its tensors itself.
        current.load_state_dict({k: v if isinstance(v, Tensor) else _copied(v) for k, v in saved.items()})
        return current
    if isinstance(current, Stateful | torch.optim.Optimizer):
        # A copy: an optimiser keeps the tensors that it is given.
        current.load_state_dict(_copied(saved))
        return current
    if isinstance(current, Tensor) and isinstance(saved, Tensor):
        return saved.to(current.device, copy=True)
    if not _same_kind(current, saved):
        raise ValueError(f"{path} was saved as a {type(saved).__name__}, but here it is a {type(current).__name__}")
    return _copied(saved)


def _same_kind(current: Any, saved: Any) -> bool:
    """Return True if a saved value may replace the current one.

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
