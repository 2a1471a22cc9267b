from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from holdfast.core.batch import Batch
from holdfast.methods._base import MAX_REPLAY, ReplayMethod, TakesWeights, finite


@dataclass(kw_only=True, eq=False)
class MEGA1(ReplayMethod):
    """MEGA-I: add the gradient of the replayed samples, as many times as their loss is larger than the new one.

    Guo et al., "Improved Schemes for Episodic Memory-based Lifelong Learning", NeurIPS 2020.

    Args:
        smallest_loss: ε; while the new loss l_t is not above it, only the replayed samples are learned.
    """

    takes_weights: ClassVar[TakesWeights] = "share"
    selects: ClassVar[str] = "ring"
    one_loss: ClassVar[bool] = False

    replay_size: Annotated[int, Field(ge=0, le=MAX_REPLAY)] = 256
    smallest_loss: Annotated[float, Field(ge=0)] = 1e-3

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            if not len(old):
                value = self.step(self.model.loss(batch))
                continue
            old_loss = self.model.loss(old)
            new_loss = self.model.loss(batch)
            value = finite(new_loss)
            if value > self.smallest_loss:
                ratio = (old_loss / new_loss).detach()
                self.step(new_loss + ratio * old_loss)  # along g + l_ref/l_t r
            else:
                self.step(old_loss)
        self.remember(batch)
        return value
