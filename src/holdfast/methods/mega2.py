from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from holdfast.core.batch import Batch
from holdfast.core.gradients import rotate_mega2
from holdfast.methods._base import MAX_REPLAY, ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class MEGA2(ReplayMethod):
    """MEGA-II: turn the new gradient towards that of the replayed samples, the more the larger their loss.

    Guo et al., "Improved Schemes for Episodic Memory-based Lifelong Learning", NeurIPS 2020.
    """

    takes_weights: ClassVar[TakesWeights] = "share"
    selects: ClassVar[str] = "ring"
    one_loss: ClassVar[bool] = False

    replay_size: Annotated[int, Field(ge=0, le=MAX_REPLAY)] = 256

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            if not len(old):
                value = self.step(self.model.loss(batch))
                continue
            old_loss = self.model.loss(old)
            reference = self.gradient(old_loss)
            new_loss = self.model.loss(batch)
            gradient = self.gradient(new_loss)
            value = new_loss.item()
            self.follow(rotate_mega2(gradient, reference, new_loss=value, old_loss=old_loss.item()))
        self.remember(batch)
        return value
