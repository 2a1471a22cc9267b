"""Retrieval: the choice of samples to replay."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.model import Model
from holdfast.core.state import Stateful
from holdfast.memory.storage import Memory


class Retrieval(Stateful):
    """Decides which stored samples are learned again beside a new batch.

    Example:
        >>> import torch
        >>> class Newest(Retrieval):
        ...     def pick(self, memory, size, batch, model):
        ...         return memory[range(max(0, len(memory) - size), len(memory))]
        >>> memory = Memory(4)
        >>> batch = Batch(torch.zeros(4, 2), torch.arange(4), torch.full((4,), NO_TASK))
        >>> memory.fit(batch)
        >>> slots = memory.add(batch)
        >>> Newest().pick(memory, 2, batch, model=None).y.tolist()
        [2, 3]
    """

    @property
    def replays_running_task(self) -> bool:
        """True if replayed samples can be of the new batch's own task, where tasks are known."""
        return True

    @abstractmethod
    def pick(self, memory: Memory, size: int, batch: Batch, model: Model) -> Batch:
        """Return up to `size` samples of a memory that is not empty, to replay beside `batch`."""


def old_slots(memory: Memory, batch: Batch) -> Tensor | None:
    """Return the slots of samples of other tasks than those of `batch`; None, for all, where tasks are unknown.

    Example:
        >>> import torch
        >>> memory = Memory(4)
        >>> stored = Batch(torch.zeros(3, 2), torch.arange(3), torch.tensor([0, 1, 1]))
        >>> memory.fit(stored)
        >>> slots = memory.add(stored)
        >>> old_slots(memory, stored[1:])
        tensor([0])
    """
    tasks = set(batch.task.tolist())
    if tasks == {NO_TASK}:
        return None
    is_old: Tensor = memory.task != tasks.pop()
    for task in tasks:
        is_old &= memory.task != task
    return is_old.nonzero().flatten()
