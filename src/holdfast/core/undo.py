"""Log of what a transaction changes, from which all of it can be brought back to the bit.

Python's attributes and containers are copied one level deep, which takes microseconds. Weights and other tensors that
may be written over are copied whole. Two kinds of objects save these copies, since they are large or many:

- A class names in `replaced` the attributes whose values it replaces and never writes over. For these a reference is
  enough.
- `Memory` writes down each slot just before it is written over, by `Undo.rows` and `Undo.item`. A selection may do
  the same with its own tables, which it then names in `replaced` too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ATOMIC = frozenset({type(None), bool, int, float, str, bytes, torch.dtype, torch.device, type, range, frozenset})


class Undo:
    """Log of one transaction after the other; a log that is not open takes nothing in.

    Example:
        >>> table = {"a": [1, 2]}
        >>> undo = Undo()
        >>> undo.begin(table)
        >>> table["a"].append(3); table["b"] = 4
        >>> undo.roll_back()
        >>> table
        {'a': [1, 2]}
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
        self._marked: set[Any] = set()  # what was written down in this transaction
        self._plans: weakref.WeakKeyDictionary[nn.Module, _Plan] = weakref.WeakKeyDictionary()
        # Copies of the weights of each network, which are written over each time.
        self._spares: weakref.WeakKeyDictionary[nn.Module, list[Tensor]] = weakref.WeakKeyDictionary()

    def __deepcopy__(self, memo: dict[int, Any]) -> Undo:
        return Undo()

    @property
    def is_open(self) -> bool:
        """Return True while a transaction writes to this log."""
        return self._entries is not None

    def begin(self, *roots: Any) -> None:
        """Write down everything that is reached from `roots`; nothing is changed."""
        self._entries, self._marked = [], set()
        self._log(torch.default_generator.set_state, torch.default_generator.get_state())
        for root in roots:
            self.keep(root)

    def close(self) -> None:
        """Forget the log: what was changed stays."""
        self._entries, self._marked = None, set()

    def roll_back(self) -> None:
        """Bring everything back. A call that was interrupted may be made again."""
        with torch.no_grad():
            for restore, arguments in reversed(self._entries or ()):
                restore(*arguments)
        self._entries = None

    def keep(self, value: Any) -> None:
        """Write down a value and all that is reached from it."""
        kind = type(value)
        if kind in ATOMIC or id(value) in self._marked:
            return
        self._marked.add(id(value))
        (_KEEPERS.get(kind) or _keeper(kind))(self, value)

    def attributes(self, owner: Any, *, but: frozenset[str] = frozenset()) -> None:
        """Write down which values an object's attributes have, and nothing of the values.

        Args:
            but: attributes that are none of what is brought back.
        """
        now = vars(owner)
        if but:
            self._log(_restore_some, now, now.copy(), but)
        else:
            self._log(_restore_dict, now, now.copy())

    def entries(self, container: dict[Any, Any] | list[Any]) -> None:
        """Write down which values a dict or a list holds, and nothing of the values."""
        self._log(_restore_list if isinstance(container, list) else _restore_dict, container, container.copy())

    def afterwards(self, action: Callable[[], None]) -> None:
        """Do `action` after whatever is written down from now on was brought back."""
        self._log(action)

    def item(self, container: Any, key: Any) -> None:
        """Write down an entry of a dict, or a row of an array, that is about to be changed."""
        if self._entries is None or self._is_marked((id(container), key)):
            return
        if isinstance(container, dict):
            self._log(_restore_item, container, key, _copy(container[key]) if key in container else _ABSENT)
        else:
            self._log(_restore_item, container, key, _copy(container[key]))

    def rows(self, table: Tensor | np.ndarray[Any, Any], index: Any) -> None:
        """Write down the rows `index` of a table that are about to be written over."""
        if self._entries is not None:
            old = table.index_select(0, index) if isinstance(table, Tensor) else table[index].copy()
            self._log(_restore_rows, table, index, old)

    def _log(self, restore: Callable[..., Any], *arguments: Any) -> None:
        assert self._entries is not None
        self._entries.append((restore, arguments))

    def _is_marked(self, mark: Any) -> bool:
        """Return True if this was written down before; from now on it is."""
        if mark in self._marked:
            return True
        self._marked.add(mark)
        return False

    def keep_all(self, values: Iterable[Any]) -> None:
        """Write down several values."""
        for value in values:
            if type(value) not in ATOMIC:
                self.keep(value)

    def keep_network(self, network: nn.Module) -> None:
        """Write down the weights that may be learned, the buffers, and the attributes of all modules."""
        plan = self._plans.get(network)
        if plan is None:
            plan = self._plans[network] = _Plan(network)
        self._log(_restore_modes, plan.inside, [module.training for module in plan.inside])
        for module, names in plan.others:
            own = vars(module)
            self._marked.add(id(module))
            self._log(_restore_dict, own, own.copy())
            self.keep_all([own[name] for name in names] if names is not None else _public(own))
        for module in (network, *plan.with_buffers) if plan.has_buffers else plan.with_buffers:
            own = vars(module)
            self.entries(own["_buffers"])
            self.entries(own["_forward_hooks"])
            self.keep_all(own["_buffers"].values())
        weights: list[Tensor] = [each for each in plan.weights if each.requires_grad and id(each) not in self._marked]
        self._keep_weights(network, weights)

    def keep_places(self, weights: list[Tensor]) -> None:
        """Write down where weights are, since they are going to be replaced and not written over."""
        self._marked.update(map(id, weights))
        self._log(_restore_places, weights, [weight.detach() for weight in weights])

    def _keep_weights(self, network: nn.Module, learned: list[Tensor]) -> None:
        """Copy weights into tensors that are there already: to allocate them would take as long as to copy."""
        if not learned:
            return
        weights, spares = [weight.detach() for weight in learned], self._spares.get(network, [])
        if [(spare.shape, spare.dtype) for spare in spares] != [(weight.shape, weight.dtype) for weight in weights]:
            spares = self._spares[network] = [torch.empty_like(weight) for weight in weights]
        torch._foreach_copy_(spares, weights)
        self._log(_restore_weights, learned, weights, spares)

    def keep_optimizer(self, optimizer: Any) -> None:
        """Write down an optimiser and what it keeps beside each parameter, but none of the parameters."""
        self.attributes(optimizer)
        self.entries(optimizer.param_groups)
        for group in optimizer.param_groups:
            self.entries(group)
            self.entries(group["params"])
        self._log(_restore_dict, optimizer.state, dict(optimizer.state))
        self.keep_all(optimizer.state.values())


class _Plan:
    """Structure of a network, which is looked up once."""

    def __init__(self, network: nn.Module) -> None:
        self.inside = [module for module in network.modules() if module is not network]
        # A pass changes nothing of torch's own layers and of our networks but buffers and modes. Of our other modules
        # the names of what can change inside are looked up once.
        others = [network, *(each for each in self.inside if not type(each).__module__.startswith(_LAYERS))]
        self._others = [(weakref.ref(each), _changing(each)) for each in others]
        self.with_buffers = [module for module in self.inside if module._buffers]
        self.has_buffers = bool(network._buffers) and _changing(network) is None
        self.weights = list(network.parameters())

    @property
    def others(self) -> list[tuple[Any, list[str] | None]]:
        return [(each(), names) for each, names in self._others]


def _changing(module: nn.Module) -> list[str] | None:
    """Return the names of attributes that hold more than a plain value; None, for all, of modules of others."""
    if not type(module).__module__.startswith("holdfast."):
        return None
    own = vars(module)
    return [name for name in own if name[0] != "_" and type(own[name]) not in ATOMIC]


def _public(own: dict[str, Any]) -> list[Any]:
    return [value for name, value in own.items() if name[0] != "_"]


class _Closed(Undo):
    """Log of an object that no transaction concerns."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Undo:
        return self

    def begin(self, *roots: Any) -> None:
        raise RuntimeError("this log belongs to no transaction")


def _keep_tensor(undo: Undo, tensor: Tensor) -> None:
    undo._log(_restore_tensor, tensor, tensor.detach(), tensor.detach().clone())


def _keep_generator(undo: Undo, generator: torch.Generator) -> None:
    undo._log(generator.set_state, generator.get_state())


def _keep_dict(undo: Undo, values: dict[Any, Any]) -> None:
    undo.entries(values)
    undo.keep_all(values.values())


def _keep_list(undo: Undo, values: list[Any]) -> None:
    undo.entries(values)
    undo.keep_all(values)


def _keep_set(undo: Undo, values: set[Any]) -> None:
    undo._log(_restore_set, values, values.copy())


def _keep_array(undo: Undo, values: np.ndarray[Any, Any]) -> None:
    undo._log(_restore_array, values, values.copy())


def _keep_object(undo: Undo, value: Any) -> None:
    if hasattr(value, "__dict__"):
        undo.attributes(value)
        undo.keep_all(vars(value).values())


def _keep_itself(undo: Undo, value: Any) -> None:
    value.keep_for_undo(undo)


def _keep_nothing(undo: Undo, value: Any) -> None:
    """Write nothing down of a value that nobody changes."""


_GENERAL: list[tuple[type | tuple[type, ...], Callable[[Undo, Any], None]]] = [
    (Tensor, _keep_tensor),
    (torch.Generator, _keep_generator),
    (nn.Module, Undo.keep_network),
    (torch.optim.Optimizer, Undo.keep_optimizer),
    (dict, _keep_dict),
    (list, _keep_list),
    (tuple, Undo.keep_all),
    (set, _keep_set),
    (np.ndarray, _keep_array),
]
_KEEPERS: dict[type, Callable[[Undo, Any], None]] = {}  # by exact type: to look through the list takes longer


def _keeper(kind: type) -> Callable[[Undo, Any], None]:
    found = next((keeper for types, keeper in _GENERAL if issubclass(kind, types)), _keep_object)
    if hasattr(kind, "keep_for_undo"):
        found = _keep_itself
    elif found is _keep_object and (issubclass(kind, Callable) or _is_frozen(kind)):  # type: ignore[arg-type]
        found = _keep_nothing
    _KEEPERS[kind] = found
    return found


def _is_frozen(kind: type) -> bool:
    """Return True for settings: a frozen model of pydantic."""
    return bool(getattr(kind, "model_config", {}).get("frozen"))


NO_UNDO = _Closed()
_ABSENT = object()
_LAYERS = ("torch.nn.", "holdfast.backbones.")


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    return value.copy() if isinstance(value, list | dict | set | np.ndarray) else value


def put_data(tensor: Tensor, data: Tensor) -> None:
    """Give a tensor other data, which may be of another shape.

    A graph of a step that failed lives as long as its exception. Torch would go on to add gradients up for the shape in
    that graph. It lets go of the graph when the data are of another dtype in between.
    """
    if tensor.requires_grad and tensor.shape != data.shape:
        tensor.data = data.new_empty(0, dtype=torch.float32 if data.dtype == torch.float64 else torch.float64)
    tensor.data = data


def _restore_tensor(tensor: Tensor, place: Tensor, content: Tensor) -> None:
    place.copy_(content)
    if tensor.data_ptr() != place.data_ptr() or tensor.shape != place.shape:
        put_data(tensor, place)


def _restore_weights(learned: list[Tensor], places: list[Tensor], contents: list[Tensor]) -> None:
    for weight, place, content in zip(learned, places, contents, strict=True):
        _restore_tensor(weight, place, content)
        weight.grad = None


def _restore_places(weights: list[Tensor], places: list[Tensor]) -> None:
    for weight, place in zip(weights, places, strict=True):
        put_data(weight, place)
        weight.grad = None


def _restore_modes(modules: list[nn.Module], modes: list[bool]) -> None:
    for module, mode in zip(modules, modes, strict=True):
        module.training = mode


def _restore_dict(owner: Any, before: dict[Any, Any]) -> None:
    owner.update(before)
    for key in [key for key in owner if key not in before]:
        del owner[key]
    if list(owner) != list(before):  # the order of entries is state as well
        owner.clear()
        owner.update(before)


def _restore_some(owner: dict[str, Any], before: dict[str, Any], but: frozenset[str]) -> None:
    owner.update({name: value for name, value in before.items() if name not in but})
    for name in [name for name in owner if name not in before and name not in but]:
        del owner[name]


def _restore_list(owner: list[Any], before: list[Any]) -> None:
    owner[:] = before


def _restore_set(owner: set[Any], before: set[Any]) -> None:
    owner.clear()
    owner.update(before)


def _restore_array(owner: np.ndarray[Any, Any], before: np.ndarray[Any, Any]) -> None:
    owner[...] = before


def _restore_item(container: Any, key: Any, before: Any) -> None:
    if before is _ABSENT:
        container.pop(key, None)
    else:
        container[key] = _copy(before)


def _restore_rows(table: Any, index: Any, before: Any) -> None:
    if isinstance(table, Tensor):
        table.index_copy_(0, index, before)
    else:
        table[index] = before
