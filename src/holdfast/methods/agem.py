from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from holdfast.core.batch import Batch
from holdfast.core.gradients import project_agem
from holdfast.methods._base import MAX_REPLAY, ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class AGEM(ReplayMethod):
    """A-GEM: follow the new gradient, less what would raise the loss of the replayed samples.

    Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019.
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
            reference = self.gradient(self.model.loss(old))
            loss = self.model.loss(batch)
            self.follow(project_agem(self.gradient(loss), reference))
            value = loss.item()
        self.remember(batch)
        return value
