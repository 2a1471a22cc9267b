from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.batch import NO_TASK, Batch, join
from holdfast.core.classes import tasks_own_classes
from holdfast.core.classifiers import class_means, nearest_mean_scores
from holdfast.core.model import HeadKind, predicting
from holdfast.losses.contrastive_margin import contrastive_margin_loss, paired_margin_loss
from holdfast.losses.distillation import distillation_loss
from holdfast.memory.selection.centroid import Centroid
from holdfast.methods._base import EMBED_SIZE, ReplayMethod

Against = Literal["task", "seen"]


@dataclass(kw_only=True, eq=False)
class DRR(ReplayMethod):
    """Drift-Reducing Rehearsal (Algorithm 2): contrast with margins, and hold old features where they were.

    "Overcoming Domain Drift in Online Continual Learning". Its selection is `centroid` (COS) unless told otherwise.

    Args:
        reading: what the angle β of the loss is measured to: rows of the head (`classes`), features of other samples
            (`samples`), means of stored features (`centroids`), or the first two at once (`classes+samples`).
        logit_scale: s. class_margin, task_margin: m^c and m^t, in radians; m^t rests while one task was seen.
        new_against, old_against: whether new and replayed samples are contrasted with the classes of their own task
            or with all classes seen. New ones by default with their task where it is known when predicting, since
            old features are disturbed less; elsewhere with all, or they would not be told from old classes.
        distillation: the weight of the centroid distillation loss; 0 leaves it out.
        classifier: predict by the head, by the nearest mean of stored samples (`memory`), or by the nearest mean of
            the selection's centroids, weighted by what they have seen (`centroids`).
    """

    head: ClassVar[HeadKind] = "cosine"
    selects: ClassVar[str] = "centroid"
    derived: ClassVar[frozenset[str]] = frozenset({"_means"})

    reading: Literal["classes", "samples", "centroids", "classes+samples"] = "classes"
    logit_scale: float = 10.0
    class_margin: float = 0.01
    task_margin: float = 0.1
    new_against: Against | None = None
    old_against: Against = "seen"
    distillation: float = 1.0
    classifier: Literal["head", "memory", "centroids"] = "head"

    task_of_class: dict[int, int] = field(default_factory=dict, init=False)
    newest_task: int = field(default_factory=lambda: NO_TASK, init=False)
    _means: Tensor | None = field(default=None, init=False)  # of the classes, until the next batch

    def observe(self, batch: Batch) -> float:
        self.task_of_class.update(zip(batch.y.tolist(), batch.task.tolist(), strict=True))
        self.newest_task = int(batch.task[-1])
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            loss = torch.zeros((), device=self.model.device)
            if len(old):
                old_features = self.model.features(old.x)
                loss = loss + self.contrast(old, old_features, self.old_against)  # CML on old tasks
                if self.distillation:
                    loss = loss + self.distillation * distillation_loss(old_features, old.extra["feature"])  # CDL
            features = self.model.features(batch.x)
            loss = loss + self.contrast(batch, features, self.new_against or self._default_against())  # CML on the new
            if "samples" in self.reading:
                pool = torch.cat([features, old_features]) if len(old) else features
                loss = loss + self.contrast_pairs(batch, old, pool)
            value = self.step(loss)
        self.remember(batch.with_extra(feature=self.model.embed(batch.x)))  # COS, with the updated model
        self._means = None
        return value

    def end_task(self) -> None:
        """Take the features of the task's stored samples once more, by the model at its end; then they stay."""
        self.embed_again(self.newest_task)

    def contrast(self, batch: Batch, features: Tensor, against: Against) -> Tensor:
        """CML of a batch against classes; zero in the reading `samples`, which knows none."""
        if self.reading == "samples":
            return features.sum() * 0
        seen = self.model.seen.table.any(dim=0).expand(len(batch), -1)
        same_task = self._same_task(batch, seen)
        return contrastive_margin_loss(
            self._cosines(features),
            batch.y,
            same_task=same_task,
            competing=seen if against == "seen" else same_task,
            scale=self.logit_scale,
            class_margin=self.class_margin,
            task_margin=self._active_task_margin(),
        )

    def contrast_pairs(self, batch: Batch, old: Batch, features: Tensor) -> Tensor:
        """CML between samples: the mean over new anchors and the mean over replayed ones, added."""
        pool = join([batch, old]) if len(old) else batch
        is_new = torch.arange(len(pool), device=features.device) < len(batch)
        return sum(
            (
                paired_margin_loss(
                    features,
                    pool.y,
                    pool.task,
                    is_anchor=is_anchor,
                    scale=self.logit_scale,
                    class_margin=self.class_margin,
                    task_margin=self._active_task_margin(),
                )
                for is_anchor in (is_new, ~is_new)
            ),
            start=torch.zeros((), device=features.device),
        )

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        with predicting(self.model):
            features = self.model.features(x)
            if self.classifier == "head":
                return self.model.masked(self.model.head.cosines(features), task)
            if self._means is None or len(self._means) < self.model.head.n_classes:
                self._means = self._class_means()
            return self.model.masked(nearest_mean_scores(features, self._means), task)

    def _cosines(self, features: Tensor) -> Tensor:
        """(n, n_classes) cos β to what stands for each class: its row, or the mean of its stored features."""
        if self.reading != "centroids" or not len(self.memory):
            return self.model.head.cosines(features)
        means = class_means(self.memory.extra("feature"), self.memory.y, self.model.head.n_classes)
        has_mean = means.any(dim=1, keepdim=True)
        return F.normalize(features, dim=1) @ torch.where(has_mean, means, F.normalize(self.model.head.weight, dim=1)).T

    def _same_task(self, batch: Batch, seen: Tensor) -> Tensor:
        """(n, n_classes) true where a class belongs to the sample's task; all of them where tasks share classes."""
        setting = self.model.seen.setting
        if setting == "task":
            return self.model.seen.competing(batch.task)
        if setting == "class":
            by_class = [self.task_of_class.get(label, NO_TASK) for label in range(self.model.head.n_classes)]
            return torch.tensor(by_class, device=batch.task.device) == batch.task[:, None]
        return seen

    def _default_against(self) -> Against:
        return "task" if self.model.seen.predicts_by_task else "seen"

    def _active_task_margin(self) -> float:
        """m^t: it rests while one task was seen, and where tasks share classes or are not known."""
        if not tasks_own_classes(self.model.seen.setting) or len(set(self.task_of_class.values())) < 2:
            return 0.0
        return self.task_margin

    def _class_means(self) -> Tensor:
        n_classes = self.model.head.n_classes
        if self.classifier == "centroids":
            if not isinstance(self.selection, Centroid):
                raise ValueError("classifier='centroids' needs selection='centroid': use that, or classifier='memory'")
            if not self.selection.counts:
                return torch.zeros_like(self.model.head.weight)
            centres, classes, n_seen = (part.to(self.model.device) for part in self.selection.all_centroids())
            return class_means(centres, classes, n_classes, n_seen)
        if not len(self.memory):
            return torch.zeros_like(self.model.head.weight)
        features = torch.cat([self.model.features(part) for part in torch.split(self.memory.x, EMBED_SIZE)])
        return class_means(features, self.memory.y, n_classes)
