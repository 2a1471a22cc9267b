from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.model import Model
from holdfast.memory.retrieval._base import Retrieval
from holdfast.memory.storage import Memory


@dataclass(eq=False)
class OldTasks(Retrieval):
    """Samples of tasks other than that of the new batch, all equally likely, none twice.

    The paper replays completed tasks only. Where tasks are not known, everything stored is old.
    """

    def pick(self, memory: Memory, size: int, batch: Batch, model: Model) -> Batch:
        tasks = set(batch.task.tolist())
        if tasks == {NO_TASK}:
            return memory.draw(size)
        is_old = memory.task != tasks.pop()
        for task in tasks:
            is_old &= memory.task != task
        return memory.draw(size, among=is_old.nonzero().flatten())
