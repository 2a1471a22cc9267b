"""Slots for samples. Storage is dumb: selections decide who stays, retrievals who is replayed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import NO_TASK, WEIGHT, Batch
from holdfast.core.state import Count, State, Stateful, check_tensor, is_finite
from holdfast.core.undo import NO_UNDO, Undo

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_EXTRA = "extra."  # how columns of extras are told from x, y and task


def parse_bytes(text: str) -> int:
    """Return the number of bytes in a text such as '5 MB' or '64 KiB'.

    Example:
        >>> parse_bytes("5 MB"), parse_bytes("64 KiB")
        (5000000, 65536)
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*(B|[KMG]i?B)\s*", text, flags=re.IGNORECASE)
    if not found:
        raise ValueError(f"'{text}' is no size: give samples as a number (1000), or bytes with a unit ('5 MB')")
    return int(float(found[1]) * _UNITS[found[2].upper()])


class Memory(Stateful):
    """A fixed number of slots, the first `len(memory)` of which are filled.

    Adding, writing, removing and drawing take a time that does not grow with what is stored. Columns are
    allocated once, when the first sample shows its shape, in the dtype in which samples come. Columns that
    are read from a file have one row a sample at first, whatever capacity the file states. They double when they are
    full.

    Args:
        capacity: how much it may hold, in samples (1000) or in bytes of all columns ("5 MB"), and of what a selection
            keeps for each slot.
        seed: of `rng`, which all selections and retrievals draw from.

    Example:
        >>> memory = Memory("90 B")
        >>> batch = Batch(torch.zeros(3, 2), torch.tensor([0, 1, 2]), torch.full((3,), NO_TASK))
        >>> memory.fit(batch)
        >>> memory.bytes_per_sample, memory.capacity
        (24, 3)
        >>> slots = memory.add(batch)
        >>> memory.write([0], batch[2:])
        >>> memory.y.tolist(), len(memory.draw(2))
        ([2, 1, 2], 2)
    """

    derived: ClassVar[frozenset[str]] = frozenset({"_capacity", "undo", "_n_before"})

    max_samples: Annotated[int, Field(ge=1, lt=2**63)] | None
    max_bytes: Annotated[int, Field(ge=1, lt=2**63)] | None
    device: str
    filled: Count
    beside: Count
    reserved: Count
    rearranged: Count
    rewritten: Count

    def __init__(self, capacity: int | str, *, seed: int = 0, device: torch.device | str = "cpu") -> None:
        self.max_samples = capacity if isinstance(capacity, int) else None
        self.max_bytes = parse_bytes(capacity) if isinstance(capacity, str) else None
        if self.max_samples is not None and self.max_samples < 1:
            raise ValueError(f"a memory of {capacity} samples holds nothing: give 1 or more")
        self.rng = torch.Generator().manual_seed(seed)
        self.device = str(device)
        self.columns: dict[str, Tensor] = {}  # each (rows, …), of which the first `filled` count
        self._capacity = 0
        self.filled = 0
        self.beside = 0  # bytes kept elsewhere for each slot
        self.reserved = 0  # bytes kept elsewhere for all classes
        self.rearranged = 0  # incremented when memory itself evicts samples or moves slots
        self.rewritten = 0  # incremented when an extra column is overwritten in place
        self.undo: Undo = NO_UNDO  # takes in what a transaction writes over
        self._n_before = 0  # slots filled when the transaction began

    def keep_for_undo(self, undo: Undo) -> None:
        """Write down all but the samples, each of which is written down just before it is written over."""
        undo.attributes(self)
        undo.entries(self.columns)
        undo.keep(self.rng)
        self.undo, self._n_before = undo, self.filled

    def __len__(self) -> int:
        return self.filled

    @property
    def capacity(self) -> int:
        """Slots, filled or not; known once the first sample was fitted."""
        return self._capacity

    @property
    def bytes_per_sample(self) -> int:
        return _bytes_per_sample(self.columns)

    @property
    def nbytes(self) -> int:
        """Bytes of all slots, filled or not."""
        return self.capacity * self.bytes_per_sample

    @property
    def x(self) -> Tensor:
        """(len, …) the inputs stored."""
        return self.columns["x"][: self.filled]

    @property
    def y(self) -> Tensor:
        """(len,) the classes stored."""
        return self.columns["y"][: self.filled]

    @property
    def task(self) -> Tensor:
        """(len,) the tasks stored."""
        return self.columns["task"][: self.filled]

    @property
    def weight(self) -> Tensor | None:
        """(len,) how much each stored sample counts in the loss; None where each counts 1."""
        return self.extra(WEIGHT) if _EXTRA + WEIGHT in self.columns else None

    def extra(self, name: str) -> Tensor:
        """Return (len, …), the extra `name` of each stored sample."""
        return self.columns[_EXTRA + name][: self.filled]

    def column(self, name: str) -> Tensor:
        """Return (rows, …), the extra of all slots, filled or not; those that `fit` was last called for have a row."""
        return self.columns[_EXTRA + name]

    def check(self, batch: Batch) -> None:
        """Raise if there is no room for samples like those of `batch`, even without extras."""
        _capacity(self.max_samples, self.max_bytes, _bytes_per_sample(_columns(batch)), self.reserved)

    def fit(self, batch: Batch, beside: int = 0) -> None:
        """Make the columns fit the samples of `batch`: allocate them, or widen an extra that has grown.

        An extra with one number a class (logits, say) grows with the head. A memory that counts bytes then
        holds fewer samples, and gives up slots at random.

        Args:
            beside: bytes that are kept elsewhere for each slot, and count as well; settled by the first batch.
        """
        columns = _columns(batch)
        if not self.columns:
            self.beside = beside
            self._allocate(columns)
        if columns.keys() != self.columns.keys():
            raise ValueError(
                f"a sample comes with {sorted(columns)}, but memory keeps {sorted(self.columns)}: "
                "remember the same extras with every sample"
            )
        for name, column in columns.items():
            kept = self.columns[name]
            if kept.dtype != column.dtype:
                raise ValueError(f"{name} is {column.dtype}, but memory keeps {kept.dtype}")
            if kept.shape[1:] != column.shape[1:]:
                self._widen(name, column.shape[1:])
        self._reserve(self.filled + len(batch))

    def with_weights(self, batch: Batch) -> Batch:
        """Return the samples with weights if memory keeps some; from the first weights on, it does.

        What was stored before has the weight 1. Where memory counts bytes, it then holds fewer samples.
        """
        is_kept = _EXTRA + WEIGHT in self.columns
        if not self.columns or is_kept == (batch.weight is not None):
            return batch
        if is_kept:
            return batch.with_extra(**{WEIGHT: torch.ones(len(batch), device=batch.y.device)})
        self._resize(self.columns | {_EXTRA + WEIGHT: torch.ones(len(self.columns["y"]), device=self.device)})
        return batch

    def check_weights(self) -> None:
        """Raise ValueError if weights that were read from a file are none."""
        if self.weight is not None and not bool((self.require_extra(WEIGHT, torch.float32, ()) > 0).all()):
            raise ValueError("a stored sample has a weight that is not above 0")

    def reserve(self, nbytes: int) -> None:
        """Keep so many bytes of a budget in bytes free for what grows with classes; samples leave at random for it.

        ValueError if no sample fits beside.
        """
        if self.max_bytes is None or nbytes == self.reserved:
            return
        self.reserved = nbytes
        if self.columns:
            self._resize(self.columns)

    def add(self, batch: Batch) -> range:
        """Fill the next free slots with the samples of `batch`; gives the slots."""
        slots = range(self.filled, self.filled + len(batch))
        if slots.stop > self.capacity:
            raise ValueError(f"{len(batch)} samples for {self.capacity - self.filled} free slots: write over some")
        self._reserve(slots.stop)
        self._keep_rows(range(slots.start, min(slots.stop, self._n_before)))
        for name, column in _columns(batch).items():
            self.columns[name][slots.start : slots.stop] = column
        self.filled = slots.stop
        return slots

    def write(self, slots: Sequence[int], batch: Batch) -> None:
        """Put the samples of `batch` over those in `slots`, all different."""
        if len(slots) != len(batch) or (len(slots) and not 0 <= min(slots) <= max(slots) < self.filled):
            raise ValueError(f"slots {list(slots)} for {len(batch)} samples: give one filled slot a sample")
        index = torch.tensor(slots, dtype=torch.int64, device=self.device)
        self._keep_rows(index)
        for name, column in _columns(batch).items():
            self.columns[name].index_copy_(0, index, column)

    def rewrite_extra(self, name: str, slots: Tensor, values: Tensor) -> None:
        """Put `values` (k, …) beside the samples in `slots` (k,) in the place of what stood there."""
        self.undo.rows(self.columns[_EXTRA + name], slots)
        self.columns[_EXTRA + name][slots] = values
        self.rewritten += 1

    def remove(self, slot: int) -> None:
        """Free a slot; the sample of the last filled slot moves there."""
        if not 0 <= slot < self.filled:
            raise ValueError(f"no sample in slot {slot}: {self.filled} are filled")
        last = self.filled - 1
        self._keep_rows([slot])
        for column in self.columns.values():
            column[slot] = column[last]
        self.filled = last

    def remove_all(self, slots: Sequence[int]) -> None:
        """Free several slots, all different: the same as `remove` of each, the highest first, in one copy."""
        if len(slots) and not 0 <= min(slots) <= max(slots) < self.filled:
            raise ValueError(f"slots {list(slots)[:5]} …: {self.filled} are filled")
        source: dict[int, int] = {}  # by slot, where the sample comes from that moves there
        for slot in sorted(slots, reverse=True):
            self.filled -= 1
            last = source.pop(self.filled, self.filled)
            if slot != self.filled:
                source[slot] = last
        to, origin = (torch.tensor(list(of), dtype=torch.int64, device=self.device) for of in (source, source.values()))
        self._keep_rows(to)
        for column in self.columns.values():
            column.index_copy_(0, to, column.index_select(0, origin))

    def __getitem__(self, slots: slice | Tensor | Sequence[int]) -> Batch:
        """Return the samples in `slots`, as a copy."""
        if isinstance(slots, slice):
            slots = range(self.filled)[slots]
        index = slots if isinstance(slots, Tensor) else torch.tensor(slots, dtype=torch.int64)
        index = index.to(self.device)
        columns = {name: column.index_select(0, index) for name, column in self.columns.items()}
        extra = {name.removeprefix(_EXTRA): c for name, c in columns.items() if name.startswith(_EXTRA)}
        return Batch(columns["x"], columns["y"], columns["task"], extra)

    def draw(self, size: int, among: Tensor | None = None) -> Batch:
        """Draw `size` different samples at random, of all or of the slots `among`; all if there are fewer."""
        n = self.filled if among is None else len(among)
        picked = torch.tensor(self.pick_distinct(n, min(size, n)), dtype=torch.int64)
        return self[picked if among is None else among[picked.to(among.device)]]

    def pick_distinct(self, n: int, size: int) -> list[int]:
        """Draw `size` different numbers below `n`, every set equally likely, in time that depends on `size` only.

        Floyd's algorithm (Bentley and Floyd, CACM 1987).
        """
        picked: dict[int, None] = {}
        uniform = torch.rand(size, generator=self.rng, dtype=torch.float64).tolist()
        for u, top in zip(uniform, range(n - size, n), strict=True):
            candidate = int(u * (top + 1))
            picked[top if candidate in picked else candidate] = None
        return list(picked)

    def excerpt(self, *extras: str) -> Memory:
        """Return a copy of the classes and tasks stored, and of these extras beside them, without the inputs."""
        names = ["y", "task", *(_EXTRA + name for name in extras)]
        made = Memory(1, device=self.device)
        made.columns = {name: column[: self.filled].clone() for name, column in self.columns.items() if name in names}
        made.filled = self.filled
        return made

    def state_dict(self) -> State:
        """Return everything but the free slots, which hold nothing."""
        state = super().state_dict()
        state["columns"] = {name: column[: self.filled] for name, column in self.columns.items()}
        return state

    def load_state_dict(self, state: State) -> None:
        """Restore; the device stays what it is here."""
        if not isinstance(state, dict):
            raise ValueError("the saved memory is not whole: it has no parts")
        state = {"beside": 0, "reserved": 0, "rewritten": 0} | state  # from before they were counted
        filled, columns = state.get("filled"), state.get("columns")
        if not isinstance(columns, dict) or not all(_is_column(*named, filled) for named in columns.items()):
            raise ValueError(f"the saved memory is not whole: its columns do not hold {filled} samples")
        if (columns and not {"x", "y", "task"} <= set(columns)) or (filled and not columns):
            raise ValueError(f"the saved memory is not whole: its columns do not hold {filled} samples")
        device, before = self.device, self.columns
        self.columns = {}  # which none of those saved has to be like
        try:
            super().load_state_dict(state)
        except ValueError:
            self.columns = before
            raise
        self.device = device
        self._capacity = self._capacity_with(columns) if columns else 0
        if self.filled > self.capacity:
            raise ValueError(f"the saved memory is not whole: {filled} samples in {self.capacity} slots")
        self.columns = {name: column.to(device, copy=True) for name, column in columns.items()}

    def require_extra(self, name: str, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
        """Return (len, *shape), an extra that was read from a file; ValueError if it is missing or of another kind.

        Numbers of all floating dtypes are alike.
        """
        column = self.columns.get(_EXTRA + name)
        if column is None:
            raise ValueError(f"the saved memory keeps no {name} beside its samples")
        check_tensor(column, like=torch.empty(0, *shape, dtype=dtype), name=f"the column {name} of the saved memory")
        return column[: self.filled]

    @property
    def extras(self) -> frozenset[str]:
        """The names of what stands beside each sample."""
        return frozenset(name.removeprefix(_EXTRA) for name in self.columns if name.startswith(_EXTRA))

    def _keep_rows(self, slots: Sequence[int] | Tensor) -> None:
        """Write down the samples in `slots`, which are about to be written over."""
        if len(slots) and self.undo.is_open:
            index = slots if isinstance(slots, Tensor) else torch.tensor(slots, dtype=torch.int64, device=self.device)
            for column in self.columns.values():
                self.undo.rows(column, index)

    def _allocate(self, columns: dict[str, Tensor]) -> None:
        self._capacity = self._capacity_with(columns)
        self.columns = {name: _empty(self.capacity, column, self.device) for name, column in columns.items()}

    def _reserve(self, n: int) -> None:
        """See to it that there are rows for n samples, or for as many as there may be."""
        n_rows = len(self.columns["y"])
        if n_rows >= min(n, self.capacity):
            return
        n_rows = min(self.capacity, max(n, 2 * n_rows))
        for name, column in self.columns.items():
            self.columns[name] = _empty(n_rows, column, self.device)
            self.columns[name][: self.filled] = column[: self.filled]

    def _capacity_with(self, columns: dict[str, Tensor]) -> int:
        return _capacity(self.max_samples, self.max_bytes, _bytes_per_sample(columns) + self.beside, self.reserved)

    def _widen(self, name: str, shape: torch.Size) -> None:
        kept = self.columns[name]
        now = tuple(kept.shape[1:])
        grows = len(shape) == len(now) and all(new >= old for new, old in zip(shape, now, strict=True))
        if not name.startswith(_EXTRA) or not grows:
            raise ValueError(f"{name} of a sample has shape {tuple(shape)}, but memory keeps {now}")
        wide = kept.new_zeros(len(kept), *shape)
        wide[tuple(slice(n) for n in kept.shape)] = kept
        self._resize(self.columns | {name: wide})

    def _resize(self, columns: dict[str, Tensor]) -> None:
        """Take these columns, and evict samples at random where fewer fit."""
        capacity = self._capacity_with(columns)
        self.columns = columns
        if capacity == self.capacity:
            return
        self._capacity = capacity
        self.rearranged += 1
        while self.filled > capacity:
            self.remove(int(torch.randint(self.filled, (), generator=self.rng)))
        self.columns = {n: column[:capacity].clone() for n, column in self.columns.items()}


def _capacity(max_samples: int | None, max_bytes: int | None, bytes_per_slot: int, reserved: int = 0) -> int:
    """Return the number of samples of that size that there is room for."""
    capacity = max_samples if max_bytes is None else max(0, max_bytes - reserved) // bytes_per_slot
    if not capacity:
        classes = f", since its classes take {reserved:,} (see `memory_report()`)" if reserved else ""
        raise ValueError(
            f"a memory of {max_bytes} bytes holds no sample of {bytes_per_slot} bytes{classes}: give it more"
        )
    check_allocation(capacity * bytes_per_slot)
    return capacity


def check_allocation(nbytes: int) -> None:
    """Refuse to allocate more than the machine has, before trying."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > machine:
        raise MemoryError(f"a memory of {nbytes:,} bytes, on a machine that has {machine:,}: give a smaller capacity")


def _empty(n_rows: int, like: Tensor, device: str) -> Tensor:
    return torch.empty(n_rows, *like.shape[1:], dtype=like.dtype, device=device)


def _is_column(name: Any, column: Any, filled: Any) -> bool:
    """Return True for a column of `filled` samples: classes and tasks are whole numbers, and inputs are finite."""
    if not isinstance(name, str) or not isinstance(column, Tensor) or not column.ndim or len(column) != filled:
        return False
    if name == "x":
        return column.ndim > 1 and is_finite(column)
    if name in ("y", "task"):
        lowest = NO_TASK if name == "task" else 0
        return column.dtype == torch.int64 and column.ndim == 1 and not bool((column < lowest).any())
    return name.startswith(_EXTRA)


def _bytes_per_sample(columns: dict[str, Tensor]) -> int:
    return sum(column.element_size() * math.prod(column.shape[1:]) for column in columns.values())


def _columns(batch: Batch) -> dict[str, Tensor]:
    extra = {_EXTRA + name: column for name, column in batch.extra.items()}
    return {"x": batch.x, "y": batch.y, "task": batch.task} | extra
