from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.model import cross_entropy
from holdfast.methods._base import ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class ERACE(ReplayMethod):
    """Experience replay with an asymmetric cross-entropy: new classes do not push old ones away.

    Caccia et al., "New Insights on Reducing Abrupt Representation Change in Online Continual Learning", ICLR 2022.

    New samples are told from the classes of their batch only, replayed ones from all that compete for them: replay
    alone tells new classes from old ones. Where classes of other tasks compete and new samples are not replayed,
    nothing would; there new samples compete with all classes too, which is plain replay.
    """

    takes_weights: ClassVar[TakesWeights] = "share"

    def caution(self) -> str | None:
        if self._by_batch:
            return None
        return "new samples are not replayed here, so that ER-ACE is plain replay: use the retrieval 'uniform'"

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            loss = self.loss_among_new(batch) if self._by_batch else self.model.loss(batch)
            if len(old):
                loss = self.model.loss(old) + loss
            value = self.step(loss)
        self.remember(batch)
        return value

    def loss_among_new(self, batch: Batch) -> Tensor:
        """Mean cross-entropy, each sample among the classes of the batch that compete for it."""
        classes, own = torch.unique(batch.y, return_inverse=True)
        scores = self.model.masked(self.model(batch.x), batch.task)
        return cross_entropy(scores[:, classes], own, batch.weight)

    @property
    def _by_batch(self) -> bool:
        return self.model.seen.setting != "class" or self.replays_new
