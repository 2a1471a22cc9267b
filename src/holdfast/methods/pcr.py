from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.augment import contrastive_views
from holdfast.core.batch import Batch
from holdfast.core.model import HeadKind, predicting
from holdfast.losses.proxy_contrastive import proxy_contrastive_loss
from holdfast.methods._base import ReplayMethod


@dataclass(kw_only=True, eq=False)
class PCR(ReplayMethod):
    """Proxy-based Contrastive Replay: contrast samples with the proxies of the classes in the joint batch only.

    Lin et al., "PCR: Proxy-based Contrastive Replay for Online Class-Incremental Continual Learning", CVPR 2023.

    A proxy is a row of the cosine head. New and replayed samples are learned beside a view of each
    (`core.augment.contrastive_views`); new and replayed samples have a pass each. The authors learn nothing until
    there are samples to replay; here new samples are then learned alone.

    Args:
        temperature: τ, by which cosines are divided.
    """

    head: ClassVar[HeadKind] = "cosine"
    reads: ClassVar[frozenset[str]] = frozenset()

    temperature: Annotated[float, Field(gt=0)] = 0.09

    rng: torch.Generator = field(init=False)  # of the views

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rng = torch.Generator().manual_seed(self.model.head.rng.initial_seed() ^ 1)  # not the head's own numbers

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            value = self.step(self.loss(self.recall(batch), batch))
        self.remember(batch)
        return value

    def loss(self, old: Batch, new: Batch) -> Tensor:
        return self.contrast(old, new, self.features_of(old, new))

    def features_of(self, old: Batch, new: Batch) -> list[Tensor]:
        """Return the features (2n, d) of replayed samples, if any, and of new ones: samples, then a view of each."""
        parts = [part for part in (old, new) if len(part)]
        return [self.model.features(torch.cat([part.x, contrastive_views(part.x, self.rng)])) for part in parts]

    def contrast(self, old: Batch, new: Batch, features: list[Tensor]) -> Tensor:
        """Return the loss of all samples and views, given what `features_of` returned."""
        y = torch.cat([old.y.repeat(2), new.y.repeat(2)])
        task = torch.cat([old.task.repeat(2), new.task.repeat(2)])
        scores = self.scores_of(torch.cat(features))
        return proxy_contrastive_loss(scores, y, competing=self.model.seen.competing(task))

    def scores_of(self, features: Tensor) -> Tensor:
        """Return (n, n_classes) s, the cosine of features (n, d) with each proxy, divided by the temperature."""
        return self.model.head.cosines(features) / self.temperature

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        with predicting(self.model):
            return self.model.masked(self.scores_of(self.model.features(x)), task)
