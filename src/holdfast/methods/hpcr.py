from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import FEATURE, LOGITS, N_UNITS, Batch
from holdfast.core.state import Count
from holdfast.losses.similarity_distillation import similarity_distillation_loss
from holdfast.methods.pcr import PCR


@dataclass(kw_only=True, eq=False)
class HPCR(PCR):
    """Holistic Proxy-based Contrastive Replay: PCR with a loss weight that swings, and two distillations.

    Lin et al., "HPCR: Holistic Proxy-based Contrastive Replay for Online Continual Learning", 2023.

        L = τ_s(i) · PCR + α · (scores of replayed samples moved)² + β · (their similarities moved)

    τ_s swings between `least_weight` and `greatest_weight` with the step i of the task. Scores and features are those
    that a sample had before the step that learned it. The distillations rest while one task was seen; where tasks are
    not known, they never rest and i counts all steps.

    Args:
        score_weight: α. similarity_weight: β.
        least_weight, greatest_weight: bounds of τ_s. period: steps of one swing.
    """

    extras: ClassVar[frozenset[str]] = frozenset({LOGITS, N_UNITS, FEATURE})

    score_weight: Annotated[float, Field(ge=0)] = 0.1
    similarity_weight: Annotated[float, Field(ge=0)] = 0.5
    least_weight: Annotated[float, Field(ge=0)] = 0.5625
    greatest_weight: Annotated[float, Field(ge=0)] = 1.8
    period: Annotated[int, Field(ge=1)] = 500

    n_steps: Count = field(default_factory=int, init=False)  # of batches of the running task

    def check_extras(self) -> None:
        self.memory.require_extra(FEATURE, torch.float32, self.model.head.weight.shape[1:])
        n_units = self.memory.require_extra(N_UNITS, torch.int64, ())
        width = self.memory.extra(LOGITS).shape[-1] if LOGITS in self.memory.extras else 0
        self.memory.require_extra(LOGITS, torch.float32, (width,))
        if width > self.model.head.n_classes or bool(((n_units < 1) | (n_units > width)).any()):
            raise ValueError(f"stored logits are of more units than the {self.model.head.n_classes} that there are")

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            features = self.features_of(old, batch)
            loss = self.weight_of_contrast * self.contrast(old, batch, features)
            if len(old) and self.distils:
                loss = loss + self.distil(old, batch, features[0])
            feature = features[-1][: len(batch)].detach()
            logits = self.scores_of(feature).detach()
            value = self.step(loss)
        n_units = torch.full_like(batch.y, logits.shape[1])
        self.remember(batch.with_extra(feature=feature, logits=logits, n_units=n_units))
        self.n_steps += 1
        return value

    def end_task(self, task: int) -> None:
        self.n_steps = 0

    @property
    def weight_of_contrast(self) -> float:
        """τ_s: it begins at `least_weight` and swings up and down once a period."""
        swing = (1 - math.cos(2 * math.pi * self.n_steps / self.period)) / 2
        return self.least_weight + (self.greatest_weight - self.least_weight) * swing

    @property
    def distils(self) -> bool:
        """True unless one known task was seen so far."""
        return not self.model.seen.learns_by_task or self.model.seen.n_tasks_learned > 1

    def distil(self, old: Batch, new: Batch, features: Tensor) -> Tensor:
        """Return what is added to hold the scores of replayed samples and their similarities.

        Scores are compared at the class of each sample of the joint batch, so a class counts as often as it comes. A
        class that the head did not have yet when a sample was stored is left out for that sample.

        Args:
            features: (2n, d) of the replayed samples and of a view of each.
        """
        stored, n_units = old.extra[LOGITS].repeat(2, 1), old.extra[N_UNITS].repeat(2)
        y = torch.cat([old.y, new.y]).repeat(2)
        known = y < n_units[:, None]
        then = stored[:, y.clamp(max=stored.shape[1] - 1)]
        moved = ((self.scores_of(features)[:, y] - then) * known).square().sum() / known.sum().clamp(min=1)
        turned = similarity_distillation_loss(features, old.extra[FEATURE].repeat(2, 1), temperature=self.temperature)
        return self.score_weight * moved + self.similarity_weight * turned
