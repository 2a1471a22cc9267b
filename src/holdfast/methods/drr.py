from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.augment import crop_and_flip
from holdfast.core.average import StoredWeights
from holdfast.core.batch import NO_TASK, Batch, TaskNumber, join
from holdfast.core.classes import tasks_own_classes
from holdfast.core.classifiers import class_means, nearest_mean_scores
from holdfast.core.model import HeadKind, predicting
from holdfast.core.state import State, check_tensor
from holdfast.losses.contrastive_margin import contrastive_margin_loss, paired_margin_loss
from holdfast.losses.distillation import distillation_loss
from holdfast.losses.score_distillation import score_distillation_loss
from holdfast.memory.selection.centroid import Centroid
from holdfast.methods._base import ReplayMethod

Against = Literal["task", "before", "seen"]
NewAgainst = Against | Literal["batch"]
TEMPERATURE = 2.0  # of distilled scores, as is usual since Li and Hoiem


@dataclass(kw_only=True, eq=False)
class DRR(ReplayMethod):
    """Drift-Reducing Rehearsal (Algorithm 2): contrast with margins, and hold old features where they were.

    "Overcoming Domain Drift in Online Continual Learning". Its selection is `centroid` (COS) unless told otherwise.

    Args:
        reading: what the angle β of the loss is measured to: rows of the head (`classes`), features of other samples
            (`samples`), means of stored features (`centroids`), or the first two at once (`classes+samples`).
        logit_scale: s. class_margin, task_margin: m^c and m^t, in radians; m^t rests while one task was seen.
        new_against, old_against: whether new and replayed samples are contrasted with the classes of their own task,
            also with those of tasks of lower numbers (`before`), or with all classes seen; new ones also with those of
            their batch. By default it is their task where that is known when predicting, which asks for no more.
            Elsewhere replayed ones are contrasted with all. New ones that push against all classes disturb old
            features, so in `class` and `free` it is their batch if new samples are replayed too, which then tells
            new classes from old ones; else all.
        blind_units: the classes that a sample is not contrasted with do not count (`out`), or count as orthogonal to
            it (`zero`, as in the predecessors' code).
        distillation: the weight of the centroid distillation loss; 0 leaves it out.
        score_distillation: the weight of a loss that holds how the classes of each old task compare, for new and for
            replayed samples, as the model at the end of the last task has them; a copy of that is kept. Not in the
            paper.
        classifier: predict by the head, by the nearest mean of stored samples (`memory`), or by the nearest mean of
            the selection's centroids, weighted by what they have seen (`centroids`).
        augment: replay images shifted by up to four pixels and flipped or not. Not in the paper.
        mirror: learn each new image beside its mirror image. Not in the paper.
        mirror_scores: predict from the features of an image and of its mirror image, added. Not in the paper.
    """

    head: ClassVar[HeadKind] = "cosine"
    selects: ClassVar[str] = "centroid"
    derived: ClassVar[frozenset[str]] = frozenset({"_means"})
    extras: ClassVar[frozenset[str]] = frozenset({"feature"})

    reading: Literal["classes", "samples", "centroids", "classes+samples"] = "classes"
    logit_scale: float = 10.0
    class_margin: float = 0.01
    task_margin: float = 0.1
    new_against: NewAgainst | None = None
    old_against: Against | None = None
    blind_units: Literal["out", "zero"] = "out"
    distillation: float = 1.0
    score_distillation: float = 0.0
    classifier: Literal["head", "memory", "centroids"] = "head"
    augment: bool = False
    mirror: bool = False
    mirror_scores: bool = False

    newest_task: TaskNumber = field(default_factory=lambda: NO_TASK, init=False)
    rng: torch.Generator = field(init=False)  # of augmentations
    # If scores are distilled: the model at the end of the last task, and (k, 2) each class in its group then.
    last_end: StoredWeights = field(init=False)
    last_groups: Tensor = field(init=False)
    _means: Tensor | None = field(default=None, init=False)  # of the classes, until the next batch

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rng = torch.Generator().manual_seed(self.model.head.rng.initial_seed() ^ 1)  # not the head's own numbers
        if self.score_distillation:
            self.last_end, self.last_groups = StoredWeights(), torch.zeros(0, 2, dtype=torch.int64)

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        if self.score_distillation:
            self.last_end.check(self.model)
            check_tensor(self.last_groups, like=torch.zeros(0, 2, dtype=torch.int64), name="the classes in groups")
            group, label = self.last_groups.T
            if not _are_below(label, self.model.head.n_classes) or not _are_below(group, len(group)):
                raise ValueError("a class in a group is not one of the classes that there are")

    def check_extras(self) -> None:
        self.memory.require_extra("feature", torch.float32, self.model.head.weight.shape[1:])

    def observe(self, batch: Batch) -> float:
        new = join([batch, replace(batch, x=_mirrored(batch.x, option="mirror"))]) if self.mirror else batch
        self.model.seen.add(batch.y, batch.task)
        self.newest_task = int(batch.task[-1])
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            if self.augment and len(old):
                old = replace(old, x=crop_and_flip(old.x, self.rng))
            parts = [part for part in (old, new) if len(part)]
            held = self._scores_at_last_end(parts)
            features = [self.model.features(part.x) for part in parts]  # a pass each
            loss = self.contrast(old, new, torch.cat(features))  # CML
            if self.distillation and len(old):
                loss = loss + self.distillation * distillation_loss(features[0], old.extra["feature"])  # CDL
            if held:
                loss = loss + self.score_distillation * self.hold(features, held)
            value = self.step(loss)
        self.remember(batch.with_extra(feature=self.embed(batch.x)))  # COS, with the updated model
        self._means = None
        return value

    def end_task(self) -> None:
        """Take the features of the task's stored samples once more, by the model at its end; then they stay."""
        self.embed_again(self.newest_task)
        if self.score_distillation:
            with self.settled():
                self.last_end.take(self.model)
            self.last_groups = self.model.seen.groups().nonzero()

    def caution(self) -> str | None:
        if self.score_distillation and not self.model.seen.learns_by_task:
            return f"in the setting '{self.model.seen.setting}' no task is known to end, so score_distillation rests"
        return None

    def contrast(self, old: Batch, new: Batch, features: Tensor) -> Tensor:
        """CML: its mean over replayed samples and its mean over new ones, added.

        Args:
            features: (n, d) of the replayed samples and then of the new ones.
        """
        y, task = torch.cat([old.y, new.y]), torch.cat([old.task, new.task])
        is_old = torch.arange(len(y), device=features.device) < len(old)
        task_margin = self._active_task_margin()
        loss = torch.zeros((), device=features.device)
        if self.reading != "samples":
            same_task, competing = self._competing(task, is_old, new.y)
            loss = loss + contrastive_margin_loss(
                self._cosines(features),
                y,
                same_task=same_task,
                competing=competing,
                weights=torch.where(is_old, 1 / max(len(old), 1), 1 / len(new)),
                scale=self.logit_scale,
                class_margin=self.class_margin,
                task_margin=task_margin,
                blind_logit=0.0 if self.blind_units == "zero" else -math.inf,
            )
        if "samples" in self.reading:
            for is_anchor in (is_old, ~is_old):
                loss = loss + paired_margin_loss(
                    features,
                    y,
                    task,
                    is_anchor=is_anchor,
                    scale=self.logit_scale,
                    class_margin=self.class_margin,
                    task_margin=task_margin,
                )
        return loss

    def hold(self, features: list[Tensor], held: list[Tensor]) -> Tensor:
        """How far the scores within each old task have moved since the last task's end: a mean over each part, added.

        Args:
            features: (n, d) of each part. held: (n, n_classes) its scores then.
        """
        group, y = self.last_groups.to(self.model.device).unbind(1)
        n_groups = int(group[-1]) + 1 if len(group) else 0
        groups = torch.zeros(n_groups, self.model.head.n_classes, dtype=torch.bool, device=self.model.device)
        groups[group, y] = True
        losses = [
            score_distillation_loss(
                self.logit_scale * self.model.head.cosines(now), then, groups, temperature=TEMPERATURE
            )
            for now, then in zip(features, held, strict=True)
        ]
        return torch.stack(losses).sum()

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        with predicting(self.model):
            features = self.model.features(x)
            if self.mirror_scores:
                features = features + self.model.features(_mirrored(x, option="mirror_scores"))
            if self.classifier == "head":
                return self.model.masked(self.model.head.cosines(features), task)
            if self._means is None or len(self._means) < self.model.head.n_classes:
                self._means = self._class_means()
            return self.model.masked(nearest_mean_scores(features, self._means), task)

    def _scores_at_last_end(self, parts: list[Batch]) -> list[Tensor]:
        """(n, n_classes) of each part, by the model at the last task's end; none if that is not wanted or not there."""
        if not self.score_distillation or not self.last_end.tensors:
            return []
        with self.last_end.inside(self.model), torch.no_grad():
            cosines = self.model.head.cosines(self.model.embed(torch.cat([part.x for part in parts])))
        return list(torch.split(self.logit_scale * cosines, [len(part) for part in parts]))

    def _cosines(self, features: Tensor) -> Tensor:
        """(n, n_classes) cos β to what stands for each class: its row, or the mean of its stored features."""
        if self.reading != "centroids" or not len(self.memory):
            return self.model.head.cosines(features)
        means = class_means(self.memory.extra("feature"), self.memory.y, self.model.head.n_classes)
        has_mean = means.any(dim=1, keepdim=True)
        return F.normalize(features, dim=1) @ torch.where(has_mean, means, F.normalize(self.model.head.weight, dim=1)).T

    def _competing(self, task: Tensor, is_old: Tensor, new_classes: Tensor) -> tuple[Tensor, Tensor]:
        """(n, n_classes) true where a class is of the sample's task, and true where it is contrasted with it."""
        seen = self.model.seen.all_seen().to(task.device).expand(len(task), -1)
        by_task = self.model.seen.predicts_by_task
        old_against = self.old_against or ("task" if by_task else "seen")
        new_against = self.new_against or ("task" if by_task else self._least_disturbing())
        reach = {"task": self.model.seen.of_task(task), "seen": seen}
        if new_against == "batch":
            reach["batch"] = torch.zeros_like(seen[0]).index_fill(0, new_classes, value=True).expand_as(seen)
        if "before" in (old_against, new_against):
            reach["before"] = self._up_to_own_task(task, seen)
        if old_against == new_against:
            return reach["task"], reach[new_against]
        return reach["task"], torch.where(is_old[:, None], reach[old_against], reach[new_against])

    def _least_disturbing(self) -> NewAgainst:
        """What new samples are contrasted with where the task is not known: as little as lets classes be told apart."""
        return "batch" if self.replays_new and self.model.seen.setting != "domain" else "seen"

    def _up_to_own_task(self, task: Tensor, seen: Tensor) -> Tensor:
        """(n, n_classes) true where a class is of the sample's task or of a task before it.

        In the setting `class` an announced class counts too, until a sample of it was learned.
        """
        before = self.model.seen.up_to_task(task)
        if self.model.seen.setting != "class":
            return before
        return before | (seen & ~self.model.seen.all_learned().to(task.device))

    def _active_task_margin(self) -> float:
        """m^t: it rests while one task was seen, and where tasks share classes or are not known."""
        if not tasks_own_classes(self.model.seen.setting) or self.model.seen.n_tasks_learned < 2:
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
        return class_means(self.model.embed(self.memory.x), self.memory.y, n_classes)


def _mirrored(images: Tensor, *, option: str) -> Tensor:
    """Images (n, channels, height, width) with left and right exchanged, as an option asks for."""
    if images.ndim != 4:
        raise ValueError(f"inputs of shape {tuple(images.shape[1:])} are no images: use {option}=False")
    return images.flip(-1)


def _are_below(numbers: Tensor, limit: int) -> bool:
    """Whether all whole numbers (n,) are from 0 to below `limit`."""
    return bool(((numbers >= 0) & (numbers < limit)).all())
