from __future__ import annotations

from dataclasses import dataclass, field

import torch

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.core.state import Count
from holdfast.memory.selection._base import Selection, place
from holdfast.memory.storage import Memory


@dataclass(eq=False)
class Reservoir(Selection):
    """Every sample of the stream is equally likely to be in memory (Vitter, ACM TOMS 1985)."""

    offered: Count = field(default_factory=int, init=False)  # samples shown to this policy so far

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        uniform = torch.rand(len(batch), generator=memory.rng, dtype=torch.float64).tolist()
        n_filled, capacity = len(memory), memory.capacity
        sample_by_slot: dict[int, int] = {}
        for i, u in enumerate(uniform):
            self.offered += 1
            if n_filled < capacity:
                slot, n_filled = n_filled, n_filled + 1
            else:
                slot = int(u * self.offered)
            if slot < capacity:
                sample_by_slot[slot] = i
        place(memory, batch, sample_by_slot)
