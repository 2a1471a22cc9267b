from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from holdfast.methods._sums import SumsMethod


@dataclass(kw_only=True, eq=False)
class NCM(SumsMethod):
    """The nearest class mean, on features that stay as they are.

    Mensink et al., "Distance-Based Image Classification", TPAMI 2013; with cosines, SimpleCIL of Zhou et al., 2023.

    Args:
        distance: `cosine` compares directions; `euclidean` is the negative squared distance.
    """

    products: ClassVar[bool] = False

    distance: Literal["cosine", "euclidean"] = "cosine"

    def sum_scores(self, features: Tensor) -> Tensor:
        means = self._means()
        if self.distance == "cosine":
            return F.normalize(features) @ F.normalize(means).T
        return 2 * features @ means.T - means.square().sum(dim=1) - features.square().sum(dim=1, keepdim=True)

    def _means(self) -> Tensor:
        self.sums.fold()
        if self._solution is None or self._solution[0] != self.sums.n_samples:
            means = self.sums.sums() / self.sums.counts.clamp(min=1)[:, None]
            self._solution = (self.sums.n_samples, means)
        means_now: Tensor = self._solution[1]
        return means_now
