"""Selection: the choice of samples to store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from torch import Tensor

from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.classes import MAX_TASKS
from holdfast.core.model import Model
from holdfast.core.state import Stateful
from holdfast.memory.storage import Memory

ENTRY = 250  # bytes of an entry of Python in a table by task and class: key, list, number
Key = tuple[int, int]  # task and class: the ten digits of one permutation are not those of another


class Prototypes(NamedTuple):
    """Points in the space of features that stand for classes.

    Attributes:
        features: (k, d).
        y: (k,) the class of each.
        n_seen: (k,) how many samples each stands for.
    """

    features: Tensor
    y: Tensor
    n_seen: Tensor


class Selection(Stateful):
    """Decides which samples of the stream memory keeps; all its randomness comes from `memory.rng`.

    Example:
        >>> import torch
        >>> class First(Selection):
        ...     def update(self, memory, batch, model):
        ...         memory.add(batch[: memory.capacity - len(memory)])
        >>> memory = Memory(2)
        >>> batch = Batch(torch.zeros(3, 5), torch.tensor([7, 8, 9]), torch.full((3,), NO_TASK))
        >>> memory.fit(batch)
        >>> First().update(memory, batch, model=None)
        >>> memory.y.tolist()
        [7, 8]
    """

    extras: ClassVar[frozenset[str]] = frozenset()  # what this policy keeps beside samples
    needs_head: ClassVar[bool] = False  # the policy means nothing where a method does not learn the head

    def with_extras(self, batch: Batch, model: Model) -> Batch:
        """Return the samples with what this policy wants to find again beside them, if anything."""
        return batch

    def check(self, memory: Memory, model: Model) -> None:
        """Raise ValueError if this state, read from a file, is not one of what is stored in `memory`."""

    def bytes_beside(self, batch: Batch) -> int:
        """Bytes that this policy keeps for each slot outside of memory, which a budget in bytes has to include.

        Args:
            batch: samples with the extras of this policy.
        """
        return 0

    def bytes_of_classes(self, batch: Batch) -> int:
        """Return the bytes that this policy keeps for each class, which a budget in bytes has to include.

        Args:
            batch: samples with the extras of this policy, which may be of new classes.
        """
        return 0

    def prototypes(self) -> Prototypes | None:
        """Return what stands for the classes seen; None if the policy forms no prototypes."""
        return None

    def distances(self, memory: Memory) -> Tensor | None:
        """(n,) Return how far each stored sample is from its prototype; None if the policy forms no prototypes."""
        return None

    @abstractmethod
    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        """Take what is wanted of `batch`, which the model has just learned, into memory."""


def keys_of(samples: Batch | Memory) -> list[Key]:
    """Return the task and class of each sample.

    Example:
        >>> import torch
        >>> keys_of(Batch(torch.zeros(2, 5), torch.tensor([7, 8]), torch.tensor([0, 1])))
        [(0, 7), (1, 8)]
    """
    return list(zip(samples.task.tolist(), samples.y.tolist(), strict=True))


def slots_by_key(memory: Memory) -> dict[Key, list[int]]:
    """Return the slots that each class of each task has."""
    found: dict[Key, list[int]] = {}
    for slot, key in enumerate(keys_of(memory)):
        found.setdefault(key, []).append(slot)
    return found


def check_slots(saved: dict[Key, list[int]], memory: Memory) -> None:
    """Raise ValueError unless these are the slots that each class of each task has, in any order."""
    if {key: sorted(slots) for key, slots in saved.items() if slots} != slots_by_key(memory):
        raise ValueError("the saved slots of each class are not those of the samples in memory")


def check_keys(keys: Iterable[Key], model: Model) -> None:
    """Raise ValueError unless the model has room for the classes, and the tasks can be tasks."""
    if not all(0 <= y < model.head.n_classes and NO_TASK <= task < MAX_TASKS for task, y in keys):
        raise ValueError(f"a class that is kept is not one of the {model.head.n_classes} that there are")


def place(memory: Memory, batch: Batch, sample_by_slot: dict[int, int]) -> None:
    """Put sample number `sample_by_slot[slot]` of `batch` into each slot, in two copies instead of one a sample.

    Slots from `len(memory)` on are new ones, given without a gap.

    Example:
        >>> import torch
        >>> memory = Memory(3)
        >>> batch = Batch(torch.zeros(3, 5), torch.tensor([7, 8, 9]), torch.full((3,), NO_TASK))
        >>> memory.fit(batch)
        >>> place(memory, batch, {0: 2, 1: 0})
        >>> memory.y.tolist()
        [9, 7]
    """
    if not sample_by_slot:
        return
    n_filled = len(memory)
    over = {slot: sample for slot, sample in sample_by_slot.items() if slot < n_filled}
    if over:
        memory.write(list(over), batch[list(over.values())])
    if len(over) < len(sample_by_slot):
        new = [sample_by_slot[slot] for slot in range(n_filled, n_filled + len(sample_by_slot) - len(over))]
        memory.add(batch[new])
