from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.model import cross_entropy
from holdfast.methods._base import Method, TakesWeights


@dataclass(kw_only=True, eq=False)
class Finetune(Method):
    """VAN: learn each batch and nothing else; the lower bound. On the stream `joint` it is the upper bound.

    Args:
        against: contrast a sample with the classes that compete for it when predicting (`task`), or with all seen
            classes (`seen`: JOINT on Split CIFAR in A-GEM's code).
    """

    takes_weights: ClassVar[TakesWeights] = "share"

    against: Literal["task", "seen"] = "task"

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            loss = self.step(self.model.loss(batch) if self.against == "task" else self._loss_among_all(batch))
        return loss

    def _loss_among_all(self, batch: Batch) -> Tensor:
        unseen = ~self.model.seen.all_seen().to(self.model.device)
        return cross_entropy(self.model(batch.x).masked_fill(unseen, -math.inf), batch.y, batch.weight)
