from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import FEATURE, Batch
from holdfast.core.classes import tasks_own_classes
from holdfast.core.model import HeadKind, predicting
from holdfast.losses.margin_softmax import margin_softmax_loss
from holdfast.methods._base import ReplayMethod


@dataclass(kw_only=True, eq=False)
class MDMTR(ReplayMethod):
    """MDMT-R: margins between tasks and between classes, and old features held where they were.

    Lyu et al., "Multi-Domain Multi-Task Rehearsal for Lifelong Learning", AAAI 2021.

    A new sample sees the classes of its task; a replayed one also those of the tasks before, in the order of their
    numbers. Where tasks share classes or are not known, every sample sees all classes seen so far, and the task margin
    rests.

    Args:
        logit_scale: s. task_margin, class_margin: m1 and m2, in radians.
        blind_units: the classes that a sample does not see count as orthogonal to it (`zero`, as in the authors' code)
            or not at all (`out`).
        distillation: the weight of the episodic distillation loss, the mean absolute change of old features.
    """

    head: ClassVar[HeadKind] = "cosine"
    selects: ClassVar[str] = "ring"
    extras: ClassVar[frozenset[str]] = frozenset({FEATURE})
    reads: ClassVar[frozenset[str]] = frozenset()

    logit_scale: Annotated[float, Field(gt=0)] = 24.0
    task_margin: Annotated[float, Field(ge=0, lt=math.pi)] = 0.4
    class_margin: Annotated[float, Field(ge=0, lt=math.pi)] = 0.01
    blind_units: Literal["zero", "out"] = "zero"
    distillation: Annotated[float, Field(ge=0)] = 1.0

    def check_extras(self) -> None:
        self.memory.require_extra(FEATURE, torch.float32, self.model.head.weight.shape[1:])

    def caution(self) -> str | None:
        seen = self.model.seen
        if seen.predicts_by_task:
            return None
        if tasks_own_classes(seen.setting):
            return f"in the setting '{seen.setting}' MDMT-R tells new samples from the classes of their own task only"
        return f"in the setting '{seen.setting}' no class belongs to one known task, so MDMT-R's task margin rests"

    def observe(self, batch: Batch) -> float:
        self.model.seen.add(batch.y, batch.task)
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            loss = torch.zeros((), device=self.model.device)
            if len(old):
                old_features = self.model.features(old.x)
                loss = loss + self.contrast(old, old_features, self.up_to_own_task(old))
                loss = loss + self.distillation * F.l1_loss(old_features, old.extra[FEATURE])
            loss = loss + self.contrast(batch, self.model.features(batch.x), self.own_task(batch))
            value = self.step(loss)
        self.remember(batch.with_extra(feature=self.embed(batch.x)))
        return value

    def end_task(self, task: int) -> None:
        """Take the features of the task's stored samples once more, by the model at its end; then they stay."""
        self.embed_again(task)

    def contrast(self, batch: Batch, features: Tensor, visible: Tensor) -> Tensor:
        """Return the margin softmax of a batch among the classes that each sample sees."""
        return margin_softmax_loss(
            self.model.head.cosines(features),
            batch.y,
            visible=visible,
            scale=self.logit_scale,
            class_margin=self.class_margin,
            task_margin=self.task_margin if tasks_own_classes(self.model.seen.setting) else 0.0,
            blind_logit=0.0 if self.blind_units == "zero" else -math.inf,
        )

    def own_task(self, batch: Batch) -> Tensor:
        """(n, n_classes) V of new samples: the classes of their task."""
        return self.model.seen.of_task(batch.task)

    def up_to_own_task(self, batch: Batch) -> Tensor:
        """(n, n_classes) V of replayed samples: the classes of their task and of those before it."""
        return self.model.seen.up_to_task(batch.task)

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        with predicting(self.model):
            return self.model.masked(self.model.head.cosines(self.model.features(x)), task)
