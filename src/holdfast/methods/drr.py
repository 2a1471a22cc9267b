from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import FEATURE, Batch, joined_weights
from holdfast.core.classes import tasks_own_classes
from holdfast.core.classifiers import class_means, nearest_mean_scores
from holdfast.core.model import HeadKind, predicting
from holdfast.core.options import option
from holdfast.losses.contrastive_margin import contrastive_margin_loss, paired_margin_loss
from holdfast.losses.distillation import distillation_loss
from holdfast.methods._base import ReplayMethod, TakesWeights

Against = Literal["task", "before", "seen"]
NewAgainst = Against | Literal["batch"]


@dataclass(kw_only=True, eq=False)
class DRR(ReplayMethod):
    """Drift-Reducing Rehearsal (Algorithm 2): contrast with margins, and hold old features where they were.

    "Overcoming Domain Drift in Online Continual Learning". Its selection is `centroid` (COS) unless told otherwise.
    `drr_plus` adds what is not in the paper.

    Args:
        reading: what the angle β of the loss is measured to: rows of the head (`classes`), features of other samples
            (`samples`), or means of stored features (`centroids`).
        logit_scale: s. class_margin, task_margin: m^c and m^t, in radians; m^t rests while one task was seen.
        new_against, old_against: the classes that new and replayed samples are contrasted with. `task`: those of their
            own task; `before`: also those of tasks of lower numbers; `seen`: all; `batch`: those of the new batch.
            None decides by the setting, as the methods `reach_of_new` and `reach_of_old` say.
        blind_units: the classes that a sample is not contrasted with do not count (`out`), or count as orthogonal to
            it (`zero`, as in the predecessors' code).
        distillation: the weight of the centroid distillation loss; 0 leaves it out.
        classifier: predict by the head (`head`), or by the nearest mean. `memory` takes means of stored samples,
            `centroids` means of the selection's centroids, weighted by the samples that they have seen.
        passes: 2 gives new and replayed samples a forward pass each, so that batch statistics do not mix. 1 takes both
            in one pass, which is faster; on a network without batch statistics it is the same up to rounding.
    """

    head: ClassVar[HeadKind] = "cosine"
    selects: ClassVar[str] = "centroid"
    takes_weights: ClassVar[TakesWeights] = "share"
    derived: ClassVar[frozenset[str]] = frozenset({"_means"})
    extras: ClassVar[frozenset[str]] = frozenset({FEATURE})
    replaced: ClassVar[frozenset[str]] = frozenset({"_means"})
    reads: ClassVar[frozenset[str]] = frozenset({"_means"})

    reading: Literal["classes", "samples", "centroids"] = "classes"
    logit_scale: Annotated[float, Field(gt=0)] = 10.0
    class_margin: Annotated[float, Field(ge=0, lt=math.pi)] = 0.01
    task_margin: Annotated[float, Field(ge=0, lt=math.pi)] = 0.1
    new_against: NewAgainst | None = None
    old_against: Against | None = None
    blind_units: Literal["out", "zero"] = "out"
    distillation: Annotated[float, Field(ge=0)] = 1.0
    classifier: Literal["head", "memory", "centroids"] = "head"
    passes: Literal[1, 2] = option(2, before=2)

    _means: Tensor | None = field(default=None, init=False)  # of the classes, until the next batch

    def check_extras(self) -> None:
        self.memory.require_extra(FEATURE, torch.float32, self.model.head.weight.shape[1:])

    def observe(self, batch: Batch) -> float:
        self.model.seen.add(batch.y, batch.task)
        for _ in range(self.steps_per_batch):
            value = self.step(self.loss(self.recall(batch), batch))  # θ and θ_{1:t} at once
        self.remember(batch.with_extra(feature=self.embed(batch.x)))  # COS, with the updated model
        self._means = None
        return value

    def end_task(self, task: int) -> None:
        """Take the features of the task's stored samples once more, by the model at its end; then they stay."""
        self.embed_again(task)

    def loss(self, old: Batch, new: Batch) -> Tensor:
        """Return the loss of a step: CML of new and of replayed samples, and CDL of the replayed ones."""
        return self.loss_of_features(old, new, self.features_of(old, new))

    def features_of(self, old: Batch, new: Batch) -> list[Tensor]:
        """Return the features (n, d) of the replayed samples, if there are any, and of the new ones."""
        if self.passes == 1 and len(old):
            features = self.model.features(torch.cat([old.x, new.x]))
            return [features[: len(old)], features[len(old) :]]
        return [self.model.features(part.x) for part in (old, new) if len(part)]

    def loss_of_features(self, old: Batch, new: Batch, features: list[Tensor]) -> Tensor:
        """Return CML and CDL, given what `features_of` returned."""
        loss = self.contrast(old, new, torch.cat(features))
        if self.distillation and len(old):
            loss = loss + self.distillation * distillation_loss(features[0], old.extra[FEATURE], old.weight)
        return loss

    def contrast(self, old: Batch, new: Batch, features: Tensor) -> Tensor:
        """Return CML: the sum of its mean over replayed samples and its mean over new ones.

        Args:
            features: (n, d) of the replayed samples and then of the new ones.
        """
        if self.reading == "samples":
            of_old, of_new = self.between_samples_of(old, new, features)
            return of_old + of_new
        y, task = torch.cat([old.y, new.y]), torch.cat([old.task, new.task])
        is_old = torch.arange(len(y), device=features.device) < len(old)
        weights, shares = joined_weights([old, new]), torch.where(is_old, 1 / max(len(old), 1), 1 / len(new))
        return contrastive_margin_loss(
            self.cosines(features),
            y,
            same_task=self.model.seen.of_task(task),
            competing=self.competing(task, is_old, new.y),
            weights=shares if weights is None else shares * weights,
            scale=self.logit_scale,
            class_margin=self.class_margin,
            task_margin=self.active_task_margin,
            blind_logit=0.0 if self.blind_units == "zero" else -math.inf,
        )

    def between_samples_of(self, old: Batch, new: Batch, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return CML in the reading `samples`: its mean over replayed samples, and its mean over new ones."""
        y, task = torch.cat([old.y, new.y]), torch.cat([old.task, new.task])
        is_old = torch.arange(len(y), device=features.device) < len(old)
        loss = partial(
            paired_margin_loss,
            features,
            y,
            task,
            weights=joined_weights([old, new]),
            scale=self.logit_scale,
            class_margin=self.class_margin,
            task_margin=self.active_task_margin,
        )
        return loss(is_anchor=is_old), loss(is_anchor=~is_old)

    def cosines(self, features: Tensor) -> Tensor:
        """Return (n, n_classes) cos β to what stands for each class: its row, or the mean of its stored features."""
        if self.reading != "centroids" or not len(self.memory):
            return self.model.head.cosines(features)
        means = class_means(self.memory.extra(FEATURE), self.memory.y, self.model.head.n_classes, self.memory.weight)
        has_mean = means.any(dim=1, keepdim=True)
        return F.normalize(features, dim=1) @ torch.where(has_mean, means, F.normalize(self.model.head.weight, dim=1)).T

    @property
    def active_task_margin(self) -> float:
        """m^t: it rests while one task was seen, and where tasks share classes or are not known."""
        if not tasks_own_classes(self.model.seen.setting) or self.model.seen.n_tasks_learned < 2:
            return 0.0
        return self.task_margin

    @property
    def reach_of_old(self) -> Against:
        """Classes that replayed samples are contrasted with: no more than prediction asks for."""
        return self.old_against or ("task" if self.model.seen.predicts_by_task else "seen")

    @property
    def reach_of_new(self) -> NewAgainst:
        """Classes that new samples are contrasted with.

        New samples that push against all classes disturb old features. So it is the classes of their batch alone, if
        new samples are replayed too, since replay then tells new classes from old ones.
        """
        if self.new_against or self.model.seen.predicts_by_task:
            return self.new_against or "task"
        return "batch" if self.replays_new and self.model.seen.setting != "domain" else "seen"

    def competing(self, task: Tensor, is_old: Tensor, new_classes: Tensor) -> Tensor:
        """Return (n, n_classes), true where a class is contrasted with a sample of the tasks `task` (n,)."""
        seen = self.model.seen

        def within(reach: NewAgainst) -> Tensor:
            if reach == "task":
                return seen.of_task(task)
            if reach == "before":
                return seen.up_to_task(task)
            if reach == "seen":
                return seen.all_seen().to(task.device).expand(len(task), -1)
            batch = torch.zeros(self.model.head.n_classes, dtype=torch.bool, device=task.device)
            return batch.index_fill(0, new_classes, value=True).expand(len(task), -1)

        return torch.where(is_old[:, None], within(self.reach_of_old), within(self.reach_of_new))

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        with predicting(self.model):
            return self.scores_of(self.model.features(x), task)

    def scores_of(self, features: Tensor, task: Tensor) -> Tensor:
        """Return (n, n_classes) cosines with means or rows, as `classifier` says; minus infinity for other classes."""
        if self.classifier == "head":
            return self.model.masked(self.model.head.cosines(features), task)
        return self.model.masked(nearest_mean_scores(features, self.means()), task)

    def prepare_to_predict(self) -> None:
        if self.classifier != "head":
            self.means()

    def means(self) -> Tensor:
        """Return (n_classes, d), the mean of each class, worked out once after each batch."""
        if self._means is None or len(self._means) < self.model.head.n_classes:
            self._means = self.class_means()
        return self._means

    def class_means(self) -> Tensor:
        """Return (n_classes, d), the mean of each class, of stored samples or of the selection's centroids."""
        n_classes = self.model.head.n_classes
        if self.classifier == "centroids":
            prototypes = self.selection.prototypes()
            if prototypes is None:
                raise ValueError("classifier='centroids' needs selection='centroid': use that, or classifier='memory'")
            if not len(prototypes.y):
                return torch.zeros_like(self.model.head.weight)
            features, y, n_seen = (part.to(self.model.device) for part in prototypes)
            return class_means(features, y, n_classes, n_seen)
        if not len(self.memory):
            return torch.zeros_like(self.model.head.weight)
        return class_means(self.model.embed(self.memory.x), self.memory.y, n_classes, self.memory.weight)
