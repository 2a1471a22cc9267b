from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.batch import Batch
from holdfast.methods._base import Method


@dataclass(kw_only=True, eq=False)
class Finetune(Method):
    """VAN: learn each batch and nothing else; the lower bound. On the stream `joint` it is the upper bound."""

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            loss = self.step(self.model.loss(batch))
        return loss
