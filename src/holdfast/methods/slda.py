from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.sums import ClassSums
from holdfast.methods._sums import SumsMethod

MOST_SHRINKAGE = 1 - 2**-10
STEPS_OF_AN_OCTAVE = 8  # that the ridge is rounded to


@dataclass(kw_only=True, eq=False)
class Slda(SumsMethod):
    """Streaming linear discriminant analysis: class means and one covariance within classes, both exact.

    Hayes and Kanan, "Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis", CVPR Workshops 2020.

        W = Σ x xᵀ - Σ_c s_c s_cᵀ / n_c,    A = W + λ I,    score_c = n (xᵀ A⁻¹ μ_c - ½ μ_cᵀ A⁻¹ μ_c)

    There the covariance is a running average of deviations from running means, which depends on the order. Here it is
    that of the sums n_c, s_c = Σ x and Σ x xᵀ. It is shrunk towards a multiple of the identity by the share ρ of OAS
    (Chen et al., IEEE TSP 2010), hence λ = ρ / (1 - ρ) · tr W / d, rounded to an eighth of an octave: so the ridge
    stays the same for many batches, and between two factorisations scores are exact by the Woodbury identity.
    """

    def sum_scores(self, features: Tensor) -> Tensor:
        factor = self._current()
        return factor.scores(features, self.sums.n_samples)

    def _current(self) -> _Factor:
        """The factor, with all samples in it; a new one where the last cannot follow."""
        factor: _Factor | None = self._solution
        if (
            factor is None
            or factor.n_samples + self.sums.n_waiting != self.sums.n_samples
            or not factor.follow(self.sums)
        ):
            self.sums.fold()
            factor = self._solution = _Factor(self.sums)
        return factor


class _Factor:
    """The Cholesky factor of A when it was made, and the samples that came since.

    A sample x of class c is u = x - μ_c, with the mean of then, zero for a new class. With the rows u in U,

        A_now = A + Uᵀ K U,    K_ij = [i = j] - [y_i = y_j] / n_{y_i},    μ_c,now = μ_c + Σ_{i of c} u_i / n_c

    so everything needed of A_now⁻¹ are products of u and of μ under A⁻¹.
    """

    def __init__(self, sums: ClassSums) -> None:
        self.n_samples = sums.n_samples
        self.counts = sums.counts.clone()
        totals = sums.sums()
        n = self.counts.clamp(min=1)[:, None]
        self.means = totals / n
        scatter = sums.gram().addmm_(self.means.T, totals, alpha=-1)
        self.trace = scatter.trace().item()
        self.square = torch.linalg.vector_norm(scatter).item() ** 2
        self.ridge = _ridge(self.trace, self.square, self.n_samples, len(scatter))
        scatter.diagonal().add_(self.ridge)
        self.factor = torch.linalg.cholesky(scatter)
        self.white_means = self._white(self.means)
        # Of the samples since: u under A⁻¹ (white), as it is, and under A (dark); their products with each other.
        d = len(scatter)
        self.y = torch.zeros(0, dtype=torch.int64)
        self.white, self.plain, self.dark = (torch.zeros(0, d, dtype=torch.float64) for _ in range(3))
        self.white_gram, self.plain_gram, self.dark_gram = (torch.zeros(0, 0, dtype=torch.float64) for _ in range(3))
        self.by_means = torch.zeros(0, len(self.means), dtype=torch.float64)  # white samples with white means
        self._solve()

    def follow(self, sums: ClassSums) -> bool:
        """Take in what waits in `sums`; False if the ridge is another one now."""
        known = len(self.y)
        if sums.n_waiting == known:
            return True
        x = torch.cat([features for features, _ in sums.waiting])[known:]
        y = torch.cat([y for _, y in sums.waiting])
        plain = x - self.means[y[known:]]
        white, dark = self._white(plain), plain @ self.factor
        self.y = y
        self.white_gram = _bordered(self.white_gram, self.white, white)
        self.plain_gram = _bordered(self.plain_gram, self.plain, plain)
        self.dark_gram = _bordered(self.dark_gram, self.dark, dark)
        self.white, self.plain, self.dark = (
            torch.cat(pair) for pair in ((self.white, white), (self.plain, plain), (self.dark, dark))
        )
        self.by_means = torch.cat([self.by_means, white @ self.white_means.T])

        centred = self._centring(sums.counts) @ self.plain_gram
        trace = self.trace + centred.trace().item()
        of_then = self.dark_gram - self.ridge * self.plain_gram  # u under W
        square = self.square + 2 * (self._centring(sums.counts) * of_then).sum().item()
        square += (centred * centred.T).sum().item()
        if _ridge(trace, square, sums.n_samples, self.plain.shape[1]) != self.ridge:
            return False
        self._solve(sums.counts)
        return True

    def scores(self, x: Tensor, n_samples: int) -> Tensor:
        """(n, n_classes) scores of features x (n, d)."""
        white = self._white(x)
        by_samples = white @ self.white.T
        by_means = white @ self.white_means.T + by_samples @ self.shares
        scores: Tensor = n_samples * (by_means - by_samples @ self.correction - self.offsets)
        return scores

    def _solve(self, counts: Tensor | None = None) -> None:
        """Work out what scores need of the samples since."""
        counts = self.counts if counts is None else counts
        n = counts.clamp(min=1).double()
        shares = torch.zeros(len(self.y), len(n), dtype=torch.float64)
        shares[torch.arange(len(self.y)), self.y] = 1 / n[self.y]
        by_means = self.by_means + self.white_gram @ shares  # with the means of now
        squares = self.white_means.square().sum(dim=1) + (shares * (self.by_means + by_means)).sum(dim=0)
        centring = self._centring(counts)
        inner = torch.eye(len(self.y), dtype=torch.float64) + centring @ self.white_gram
        self.shares = shares
        self.correction = torch.linalg.solve(inner, centring @ by_means)
        self.offsets = 0.5 * (squares - (by_means * self.correction).sum(dim=0))

    def _centring(self, counts: Tensor) -> Tensor:
        """K."""
        same = (self.y[:, None] == self.y).double()
        return torch.eye(len(self.y), dtype=torch.float64) - same / counts[self.y][:, None]

    def _white(self, rows: Tensor) -> Tensor:
        white: Tensor = torch.linalg.solve_triangular(self.factor, rows.T, upper=False).T.contiguous()
        return white


def _bordered(gram: Tensor, rows: Tensor, new: Tensor) -> Tensor:
    """The products of all rows, from those of the first rows."""
    across = rows @ new.T
    return torch.cat([torch.cat([gram, across], dim=1), torch.cat([across.T, new @ new.T], dim=1)])


def _ridge(trace: float, square: float, n_samples: int, n_features: int) -> float:
    """λ that shrinks a scatter matrix with this trace and sum of squares as OAS does, rounded."""
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
