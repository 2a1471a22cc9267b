from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.augment import crop_and_flip
from holdfast.core.average import StoredWeights
from holdfast.core.batch import Batch, join
from holdfast.core.model import predicting
from holdfast.core.state import State, check_tensor
from holdfast.losses.score_distillation import score_distillation_loss
from holdfast.methods._base import TakesWeights
from holdfast.methods.drr import DRR

TEMPERATURE = 2.0  # of distilled scores, as is usual since Li and Hoiem


@dataclass(kw_only=True, eq=False)
class DRRPlus(DRR):
    """DRR with what is not in its paper: mirror images, old scores held, augmented replay, a second reading beside.

    With the defaults below it is `drr`; the recipes' rows `drr_plus` turn on what helped on the tuning tasks.

    Args:
        mirror: learn each new image beside its mirror image.
        mirror_scores: predict from the features of an image and of its mirror image, added.
        score_distillation: the weight of a loss that holds the scores of old tasks, for new and for replayed samples.
            A copy of the model at the end of the last task gives the scores.
        augment: replay images shifted by up to four pixels and flipped or not.
        between_samples: add the loss in the reading `samples` to that of the reading chosen.
    """

    takes_weights: ClassVar[TakesWeights] = "no"  # scores of old tasks are held alike for all samples
    replaced: ClassVar[frozenset[str]] = DRR.replaced | {"last_groups"}
    reads: ClassVar[frozenset[str]] = DRR.reads

    mirror: bool = False
    mirror_scores: bool = False
    score_distillation: Annotated[float, Field(ge=0)] = 0.0
    augment: bool = False
    between_samples: bool = False

    rng: torch.Generator = field(init=False)  # of augmentations
    # If scores are distilled: the model at the end of the last task, and (k, 2) each class in its group then.
    last_end: StoredWeights = field(init=False)
    last_groups: Tensor = field(init=False)

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

    def caution(self) -> str | None:
        if self.score_distillation and not self.model.seen.learns_by_task:
            return f"in the setting '{self.model.seen.setting}' no task is known to end, so score_distillation rests"
        return super().caution()

    def loss(self, old: Batch, new: Batch) -> Tensor:
        if self.augment and len(old):
            old = replace(old, x=crop_and_flip(old.x, self.rng))
        if self.mirror:
            new = join([new, replace(new, x=_mirrored(new.x, option="mirror"))])
        features = self.features_of(old, new)
        loss = self.loss_of_features(old, new, features)
        if self.score_distillation and self.last_end.tensors:
            loss = loss + self.score_distillation * self.moved_scores([old, new], features)
        return loss

    def contrast(self, old: Batch, new: Batch, features: Tensor) -> Tensor:
        loss = super().contrast(old, new, features)
        if self.between_samples:
            of_old, of_new = self.between_samples_of(old, new, features)
            loss = loss + of_old + of_new
        return loss

    def end_task(self, task: int) -> None:
        super().end_task(task)
        if self.score_distillation:
            with self.settled():
                self.last_end.take(self.model)
            self.last_groups = self.model.seen.groups().nonzero()

    def moved_scores(self, parts: list[Batch], features: list[Tensor]) -> Tensor:
        """Return how far the scores within each old task have moved since the last task ended: a mean a part, added.

        Args:
            features: (n, d) of each part that has samples.
        """
        parts = [part for part in parts if len(part)]
        with self.last_end.inside(self.model), torch.no_grad():
            cosines = self.model.head.cosines(self.model.embed(torch.cat([part.x for part in parts])))
        held = torch.split(self.logit_scale * cosines, [len(part) for part in parts])
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
            return self.scores_of(features, task)


def _mirrored(images: Tensor, *, option: str) -> Tensor:
    """Return images (n, channels, height, width) with left and right exchanged, as an option asks for."""
    if images.ndim != 4:
        raise ValueError(f"inputs of shape {tuple(images.shape[1:])} are no images: use {option}=False")
    return images.flip(-1)


def _are_below(numbers: Tensor, limit: int) -> bool:
    """Return whether all whole numbers (n,) are from 0 to below `limit`."""
    return bool(((numbers >= 0) & (numbers < limit)).all())
