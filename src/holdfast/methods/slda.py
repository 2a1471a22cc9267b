from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.core.sums import BLOCK, ClassSums
from holdfast.methods._sums import SumsMethod

MOST_SHRINKAGE = 1 - 2**-10
STEPS_OF_AN_OCTAVE = 4  # that the ridge is rounded to


@dataclass(kw_only=True, eq=False)
class Slda(SumsMethod):
    """Streaming linear discriminant analysis: class means and one covariance within classes, both exact.

    Hayes and Kanan, "Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis", CVPR Workshops 2020.

        W = Σ x xᵀ - Σ_c s_c s_cᵀ / n_c,    A = W + λ I,    score_c = n (xᵀ A⁻¹ μ_c - ½ μ_cᵀ A⁻¹ μ_c)

    There the covariance is a running average of deviations from running means, which depends on the order. Here it is
    that of the sums n_c, s_c = Σ x and Σ x xᵀ. OAS shrinks it towards a multiple of the identity by a share ρ (Chen et
    al., IEEE TSP 2010). Hence λ = ρ / (1 - ρ) · tr W / d, rounded to a quarter of an octave: so the ridge stays the
    same for many batches, and between two factorisations scores are exact by the Woodbury identity.
    """

    def work_out(self) -> None:
        factor: _Factor | None = self._solution
        if factor is None or not factor.follow(self.sums):
            self.sums.fold()
            self._solution = _Factor(self.sums)

    def sum_scores(self, features: Tensor) -> Tensor:
        factor: _Factor = self._solution
        return factor.scores(features)


class _Factor:
    """The Cholesky factor L of A when it was made, and what the samples since have changed.

    Let μ be the mean of the samples of a class before its j-th sample x. Then x gives V a row √((j - 1) / j) (x - μ),
    and A_now = A + Vᵀ V. In the space of L⁻¹, which is called white here,

        A_now⁻¹ = L⁻ᵀ (I - Hᵀ H) L⁻¹,    H = R⁻¹ V L⁻ᵀ,    R Rᵀ = I + V A⁻¹ Vᵀ

    where more samples add rows to H and leave those before as they are. Nothing that a copy shares is written over.
    """

    def __init__(self, sums: ClassSums) -> None:
        self.n_folded = self.n_samples = sums.n_samples
        self.counts = sums.counts.double()
        totals = sums.sums()
        means = totals / self.counts.clamp(min=1)[:, None]
        self.means = list(means)
        scatter = sums.gram().addmm_(means.T, totals, alpha=-1)
        self.trace = scatter.trace().item()
        self.square = torch.linalg.vector_norm(scatter).item() ** 2
        self.ridge = _ridge(self.trace, self.square, self.n_samples, len(scatter))
        scatter.diagonal().add_(self.ridge)
        self.factor = torch.linalg.cholesky(scatter)
        self.rough_factor = self.factor.float()  # for the ridge, which is rounded anyway
        self.white_means = self._white(means)
        self.rows = self.rough_factor.new_empty(BLOCK, len(scatter))  # V, of which the first n_rows are there
        self.turned = scatter.new_empty(BLOCK, len(scatter))  # H
        self.n_rows = 0
        self.by_class = self.white_means.new_zeros(0, len(self.means))  # H times the white means
        self.lengths = torch.linalg.vector_norm(self.white_means, dim=1)
        self.offsets = 0.5 * self.lengths**2

    def __deepcopy__(self, memo: dict[int, Any]) -> _Factor:
        return copy.copy(self)

    def follow(self, sums: ClassSums) -> bool:
        """Take in what waits in `sums`; False if that needs a new factor."""
        if self.n_folded + sums.n_waiting != sums.n_samples:
            return False
        known = self.n_samples - self.n_folded
        if known == sums.n_waiting:
            return True
        # From the last batch back: few are new.
        new: list[tuple[Tensor, Tensor]] = []
        while sum(len(y) for _, y in new) < sums.n_waiting - known:
            new.append(sums.waiting[-1 - len(new)])
        x, y = (torch.cat(column) for column in zip(*reversed(new), strict=True))

        deviations, shares, scales = self._deviations(x.double(), y)
        added = scales[:, None] * deviations
        gram, rough = added @ added.T, added.float()
        self.trace += gram.trace().item()
        grown = (rough @ self.rough_factor).double().square().sum() - self.ridge * gram.trace()
        grown += (rough @ self.rows[: self.n_rows].T).double().square().sum()
        self.square += (2 * grown + gram.square().sum()).item()
        self.n_samples = sums.n_samples
        if _ridge(self.trace, self.square, self.n_samples, len(self.factor)) != self.ridge:
            return False
        self.rows[self.n_rows : self.n_rows + len(y)] = rough
        self._extend(self._white(deviations), y, shares, scales)
        return True

    def scores(self, x: Tensor) -> Tensor:
        """Return (n, n_classes) scores of features x (n, d)."""
        white = self._white(x)
        products = white @ self.white_means.T - (white @ self.turned[: self.n_rows].T) @ self.by_class
        scores: Tensor = self.n_samples * (products - self.offsets)
        return scores

    def _deviations(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return x - μ of each sample (n, d), its share 1 / j in the mean and its scale √((j - 1) / j), (n,) each."""
        deviations, shares = torch.empty_like(x), x.new_empty(len(x))
        self.means, self.counts = self.means.copy(), self.counts.clone()
        for i, c in enumerate(y.tolist()):
            self.counts[c] += 1
            shares[i] = 1 / self.counts[c]
            torch.sub(x[i], self.means[c], out=deviations[i])
            self.means[c] = self.means[c].add(deviations[i], alpha=shares[i].item())
        return deviations, shares, (1 - shares).sqrt()

    def _extend(self, white: Tensor, y: Tensor, shares: Tensor, scales: Tensor) -> None:
        """Move the white means, and add rows to H, by white deviations (n, d)."""
        start, self.n_rows = self.n_rows, self.n_rows + len(white)
        before = self.turned[:start]
        by_row = white @ before.T
        added = scales[:, None] * white
        rest = added - (scales[:, None] * by_row) @ before
        inner = torch.eye(len(white), dtype=white.dtype) + rest @ added.T
        rows = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), rest, upper=False)
        self.turned[start : self.n_rows] = rows

        moves = shares[:, None]
        self.white_means = self.white_means.index_add(0, y, moves * white)
        moved = self.by_class.index_add(1, y, (moves * by_row).T)
        self.by_class = torch.cat([moved, rows @ self.white_means.T])
        self.lengths = self.lengths.clone()
        self.lengths[y] = torch.linalg.vector_norm(self.white_means[y], dim=1)
        self.offsets = 0.5 * (self.lengths**2 - torch.linalg.vector_norm(self.by_class, dim=0) ** 2)

    def _white(self, rows: Tensor) -> Tensor:
        """Return (n, d) rows times L⁻ᵀ."""
        white: Tensor = torch.linalg.solve_triangular(self.factor, rows.T, upper=False).T
        return white.contiguous()


def _ridge(trace: float, square: float, n_samples: int, n_features: int) -> float:
    """Return λ that shrinks a scatter matrix with this trace and sum of squares as OAS does, rounded."""
    if not trace > 0:
        return 1.0  # no class has two different samples yet: distances are as they are
    shrinkage = min(oas_shrinkage(trace, square, n_samples, n_features), MOST_SHRINKAGE)
    ridge = shrinkage / (1 - shrinkage) * trace / n_features
    return float(2.0 ** (round(STEPS_OF_AN_OCTAVE * math.log2(ridge)) / STEPS_OF_AN_OCTAVE))


def oas_shrinkage(trace: float, square: float, n_samples: int, n_features: int) -> float:
    """Return the share of the identity that the oracle approximating shrinkage (OAS) gives to a covariance.

    Chen et al., "Shrinkage Algorithms for MMSE Covariance Estimation", IEEE TSP 2010, Eq. 23, as scikit-learn has it.

    Args:
        trace, square: of the covariance or any multiple of it: Σ_i S_ii and Σ_ij S_ij².

    Example:
        >>> round(oas_shrinkage(2.0, 2.5, n_samples=49, n_features=2), 3)
        0.26
    """
    mean_square, mean_trace = square / n_features**2, trace / n_features
    spread = (n_samples + 1) * (mean_square - mean_trace**2 / n_features)
    return 1.0 if spread <= 0 else min((mean_square + mean_trace**2) / spread, 1.0)
