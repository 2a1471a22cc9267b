"""Who is replayed."""

from __future__ import annotations

from abc import abstractmethod

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.core.state import Stateful
from holdfast.memory.storage import Memory


class Retrieval(Stateful):
    """Decides which stored samples are learned again beside a new batch."""

    @abstractmethod
    def pick(self, memory: Memory, size: int, batch: Batch, model: Model) -> Batch:
        """Up to `size` samples of a memory that is not empty, to replay beside `batch`."""
