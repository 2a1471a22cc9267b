from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from holdfast.core.batch import Batch
from holdfast.core.gradients import project_soft_gem
from holdfast.methods._base import MAX_REPLAY, ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class SoftGEM(ReplayMethod):
    """ε-SOFT-GEM: A-GEM that asks every step to lower the loss of the replayed samples, by a share of what it could.

    Hu et al., "Gradient Episodic Memory with a Soft Constraint for Continual Learning", 2020.

    Args:
        epsilon: ε, the least cosine, from 0 (A-GEM) to 1; both gradients are brought to length 1 to compare them.
    """

    takes_weights: ClassVar[TakesWeights] = "share"
    selects: ClassVar[str] = "ring"
    one_loss: ClassVar[bool] = False

    replay_size: Annotated[int, Field(ge=0, le=MAX_REPLAY)] = 256
    epsilon: Annotated[float, Field(ge=0, le=1)] = 0.5

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            if not len(old):
                value = self.step(self.model.loss(batch))
                continue
            reference = self.gradient(self.model.loss(old))
            loss = self.model.loss(batch)
            self.follow(project_soft_gem(self.gradient(loss), reference, epsilon=self.epsilon))
            value = loss.item()
        self.remember(batch)
        return value
