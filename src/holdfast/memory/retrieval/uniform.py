from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.memory.retrieval._base import Retrieval
from holdfast.memory.storage import Memory


@dataclass(eq=False)
class Uniform(Retrieval):
    """Any stored samples, all equally likely, none twice."""

    def pick(self, memory: Memory, size: int, batch: Batch, model: Model) -> Batch:
        return memory.draw(size)
