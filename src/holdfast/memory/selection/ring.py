from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.core.state import Count
from holdfast.memory.selection._base import ENTRY, Key, Selection, check_keys, check_slots, keys_of, place, slots_by_key
from holdfast.memory.storage import Memory


@dataclass(eq=False)
class Ring(Selection):
    """The newest samples of every class.

    Each class of each task has the same number of slots and writes over its own oldest sample when they are
    full. Without `per_class` they share the memory equally: a class that comes later takes slots, oldest
    first, from the class that has most.
    """

    replaced: ClassVar[frozenset[str]] = frozenset({"slots_by_key"})

    per_class: Annotated[int, Field(ge=1)] | None = None
    slots_by_key: dict[Key, list[int]] = field(default_factory=dict, init=False)  # oldest first
    rearranged: Count = field(default_factory=int, init=False)  # of memory, when last seen

    def check(self, memory: Memory, model: Model) -> None:
        check_keys(self.slots_by_key, model)
        if memory.rearranged == self.rearranged:
            check_slots(self.slots_by_key, memory)

    def bytes_of_classes(self, batch: Batch) -> int:
        """Return the bytes of a list of slots for each class."""
        return len(self.slots_by_key.keys() | set(keys_of(batch))) * ENTRY

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        if memory.rearranged != self.rearranged:
            self._look_again(memory)
        n_filled, capacity = len(memory), memory.capacity
        sample_by_slot: dict[int, int] = {}
        for i, key in enumerate(keys_of(batch)):
            memory.undo.item(self.slots_by_key, key)
            ring = self.slots_by_key.setdefault(key, [])
            share = self.per_class or max(1, capacity // len(self.slots_by_key))
            if len(ring) < share and n_filled < capacity:
                slot, n_filled = n_filled, n_filled + 1
            else:
                giver = key if len(ring) >= share else max(self.slots_by_key, key=lambda k: len(self.slots_by_key[k]))
                memory.undo.item(self.slots_by_key, giver)
                slot = self.slots_by_key[giver].pop(0)
            ring.append(slot)
            sample_by_slot[slot] = i
        place(memory, batch, sample_by_slot)

    def _look_again(self, memory: Memory) -> None:
        """Find the slots of each class after memory has moved samples; their age is then not known."""
        self.slots_by_key = {key: [] for key in self.slots_by_key} | slots_by_key(memory)
        self.rearranged = memory.rearranged
