from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import FEATURE, Batch
from holdfast.core.model import predicting
from holdfast.methods._base import MAX_REPLAY, Diverged, ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class KNN(ReplayMethod):
    """The classes of the stored samples whose features point most nearly the same way.

    Prabhu et al., "Online Continual Learning Without the Storage Constraint" (ACM), 2023; there every sample is stored,
    here as many as memory holds. The backbone keeps its weights, so a feature is taken once, when its sample comes.
    Nothing is replayed, and there is no loss: `observe` gives 0.

    Among the stored samples of the competing classes, the k nearest vote with weight exp((cosine - 1) / τ). See Wu et
    al., "Unsupervised Feature Learning via Non-parametric Instance Discrimination", CVPR 2018.

    Args:
        k: how many stored samples vote.
        temperature: τ.
    """

    takes_weights: ClassVar[TakesWeights] = "count"
    learns_head: ClassVar[bool] = False
    one_loss: ClassVar[bool] = False
    by_batch: ClassVar[bool] = False
    extras: ClassVar[frozenset[str]] = frozenset({FEATURE})
    standardises: ClassVar[bool] = False  # it compares directions, which embeddings have as they are
    reads: ClassVar[frozenset[str]] = frozenset()

    replay_size: Annotated[int, Field(ge=0, le=MAX_REPLAY)] = 0
    k: Annotated[int, Field(ge=1)] = 20
    temperature: Annotated[float, Field(gt=0)] = 0.07

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps_per_batch != 1 or self.average is not None:
            raise ValueError("knn takes no steps: leave steps_per_batch and average out")

    def check_extras(self) -> None:
        self.memory.require_extra(FEATURE, torch.float32, self.model.head.weight.shape[1:])

    def caution(self) -> str | None:
        if self.selection.needs_head:
            return "the selection compares gradients of the head, which knn does not learn: choose another"
        return None

    def observe(self, batch: Batch) -> float:
        features = self.model.embed(batch.x)
        if not torch.isfinite(features).all():
            raise Diverged("the backbone makes features that are not finite: nothing was learned of this batch")
        self.remember(batch.with_extra(feature=features))
        return 0.0

    def copy_for_predicting(self) -> Self:
        twin = super().copy_for_predicting()
        twin.memory = self.memory.excerpt(FEATURE)
        return twin

    def learned_tensors(self) -> list[Tensor]:
        return []  # features are looked at before they are stored

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        """Return (n, n_classes), the votes for each class, in shares of the highest that there can be."""
        with predicting(self.model):
            features = self.model.features(x)
        scores = features.new_zeros(len(x), self.model.head.n_classes)
        if len(self.memory):
            y = self.memory.y
            cosines = F.normalize(features) @ F.normalize(self.memory.extra(FEATURE)).T
            cosines = cosines.masked_fill(~self.model.seen.competing(task)[:, y], -torch.inf)  # which is no vote
            nearest = cosines.topk(min(self.k, len(y)), dim=1)
            votes = ((nearest.values - 1) / self.temperature).exp() / nearest.values.shape[1]
            scores.scatter_add_(1, y[nearest.indices], votes)
        return self.model.masked(scores, task)
