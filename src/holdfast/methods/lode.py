from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.losses.decoupled import decoupled_loss
from holdfast.methods._base import ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class LODE(ReplayMethod):
    """Loss Decoupling: weigh apart how new classes are told from each other, and how from old ones.

    Liang and Li, "Loss Decoupling for Task-Agnostic Continual Learning", NeurIPS 2023.

        L = intra(new) + ρ/t · inter(new) + cross-entropy(replayed)

    New classes are those of the running task where it is known, else those of the batch; t is the number of finished
    tasks, 1 where tasks are not known. With ρ = t it is `er`, with ρ = 0 and all new classes in the batch `er_ace`.
    Where all competing classes are new, as in `task` and `domain`, it is `er`.

    The authors halve L. Here L is not halved, so that a learning rate means the same as for `er`.

    Args:
        rho: ρ; the authors tune it for each data set.
    """

    takes_weights: ClassVar[TakesWeights] = "share"

    rho: Annotated[float, Field(ge=0)] = 1.0

    def caution(self) -> str | None:
        if self.rho == 0 and self.model.seen.setting == "class" and not self.replays_new:
            return "with rho=0 and no replay of new samples, nothing tells new classes from old ones: give rho"
        return None

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            value = self.step(self.loss(self.recall(batch), batch))
        self.remember(batch)
        return value

    def loss(self, old: Batch, new: Batch) -> Tensor:
        of_new = self.loss_of_new(new)
        return self.model.loss(old) + of_new if len(old) else of_new

    def loss_of_new(self, new: Batch) -> Tensor:
        """Return the decoupled loss of new samples."""
        seen = self.model.seen
        scores = self.model.masked(self.model(new.x), new.task)
        if seen.learns_by_task:
            new_classes = seen.of_task(new.task)
        else:
            new_classes = (
                torch.zeros_like(scores[0], dtype=torch.bool).index_fill(0, new.y, value=True).expand_as(scores)
            )
        n_finished = max(1, seen.n_tasks_learned - 1)
        rho = self.rho / n_finished
        return decoupled_loss(scores, new.y, new_classes=new_classes, rho=rho, weights=new.weight)
