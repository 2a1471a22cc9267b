from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from holdfast.methods._sums import Fixed, SumsMethod


@dataclass(kw_only=True, eq=False)
class NCM(SumsMethod):
    """The nearest class mean, on features that stay as they are.

    Mensink et al., "Distance-Based Image Classification", TPAMI 2013; with cosines, SimpleCIL of Zhou et al., 2023.

    Args:
        distance: `cosine` compares directions; `euclidean` is the negative squared distance.
    """

    products: ClassVar[bool] = False

    distance: Literal["cosine", "euclidean"] = "cosine"

    def work_out(self) -> None:
        if self._solution is None or self._solution.n_samples != self.sums.n_samples:
            self.sums.fold()
            means = self.sums.sums() / self.sums.counts.clamp(min=1)[:, None]
            self._solution = Fixed((means,), self.sums.n_samples)

    def sum_scores(self, features: Tensor) -> Tensor:
        solution: Fixed = self._solution
        (means,) = solution.tensors
        if self.distance == "cosine":
            return F.normalize(features) @ F.normalize(means).T
        return 2 * features @ means.T - means.square().sum(dim=1) - features.square().sum(dim=1, keepdim=True)
