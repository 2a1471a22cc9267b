from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from holdfast.core.batch import LOGITS, N_UNITS, Batch
from holdfast.core.classes import tasks_own_classes
from holdfast.core.model import cross_entropy
from holdfast.losses.logit_distillation import logit_distillation_loss
from holdfast.methods._base import ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class DER(ReplayMethod):
    """Dark experience replay: answer old samples with the logits given when they were learned; DER++ also by class.

    Buzzega et al., "Dark Experience for General Continual Learning: a Strong, Simple Baseline", NeurIPS 2020.

    Logits are compared over all units that the head had when a sample was stored, whichever of them competed.

    Args:
        logit_weight: α, of the squared difference of logits.
        label_weight: β, of the cross-entropy of replayed samples, which are drawn anew for it. 0 is DER, more is DER++.
    """

    takes_weights: ClassVar[TakesWeights] = "share"
    extras: ClassVar[frozenset[str]] = frozenset({LOGITS, N_UNITS})

    logit_weight: Annotated[float, Field(ge=0)] = 0.3
    label_weight: Annotated[float, Field(ge=0)] = 0.0

    def check_extras(self) -> None:
        n_units = self.memory.require_extra(N_UNITS, torch.int64, ())
        width = self.memory.extra(LOGITS).shape[-1] if LOGITS in self.memory.extras else 0
        self.memory.require_extra(LOGITS, torch.float32, (width,))
        if width > self.model.head.n_classes or bool(((n_units < 1) | (n_units > width)).any()):
            raise ValueError(f"stored logits are of more units than the {self.model.head.n_classes} that there are")

    def caution(self) -> str | None:
        seen = self.model.seen
        tasks_share_classes = seen.learns_by_task and not tasks_own_classes(seen.setting)
        if self.label_weight or seen.predicts_by_task or tasks_share_classes:
            return None
        return (
            f"in the setting '{seen.setting}' stored logits do not tell an old sample from classes that came later: "
            "give label_weight, which makes it DER++"
        )

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            logits = self.model(batch.x)
            loss = cross_entropy(self.model.masked(logits, batch.task), batch.y, batch.weight)
            old = self.recall(batch)
            if len(old):
                stored, n_units = old.extra[LOGITS], old.extra[N_UNITS]
                distance = logit_distillation_loss(self.model(old.x), stored, n_units, old.weight)
                loss = loss + self.logit_weight * distance
                if self.label_weight:
                    loss = loss + self.label_weight * self.model.loss(self.recall(batch))
            value = self.step(loss)
        # The logits before the last step. A head that grows leaves them behind, so their number is kept as well.
        n_units = torch.full_like(batch.y, logits.shape[1])
        self.remember(batch.with_extra(logits=logits.detach(), n_units=n_units))
        return value
