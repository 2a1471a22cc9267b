from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.core.batch import Batch, join
from holdfast.methods.wrappers._base import ReplayWrapper


@dataclass(kw_only=True, eq=False)
class Mirror(ReplayWrapper):
    """Learn each new image beside its mirror image, and predict by the mean score of the two.

    `drr_plus` does so by its options `mirror` and `mirror_scores`; this wrapper gives other methods the same advantage.
    Memory gets each image once, as it came. Replayed images are not mirrored. Inputs that are no images are learned
    as they are.
    """

    needs_batches: ClassVar[bool] = True

    def observe(self, batch: Batch) -> float:
        if batch.x.ndim != 4:
            return super().observe(batch)  # type: ignore[safe-super]
        with self.storing(batch):
            return super().observe(join([batch, replace(batch, x=batch.x.flip(-1))]))  # type: ignore[safe-super]

    def remember(self, batch: Batch) -> None:
        super().remember(batch if self._raw is None else batch[: len(self._raw)])

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        scores = super().scores(x, task)
        return scores if x.ndim != 4 else torch.stack([scores, super().scores(x.flip(-1), task)]).mean(dim=0)
