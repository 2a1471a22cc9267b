from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.memory.retrieval._base import Retrieval, old_slots
from holdfast.memory.storage import Memory


@dataclass(eq=False)
class OldTasks(Retrieval):
    """Samples of tasks other than that of the new batch, all equally likely, none twice.

    The paper replays completed tasks only. Where tasks are not known, everything stored is old.
    """

    @property
    def replays_running_task(self) -> bool:
        return False

    def pick(self, memory: Memory, size: int, batch: Batch, model: Model) -> Batch:
        return memory.draw(size, among=old_slots(memory, batch))
