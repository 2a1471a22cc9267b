from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.methods._projection import MAX_WIDTH, project, random_matrix
from holdfast.methods._sums import Fixed, SumsMethod

CANDIDATES = 10.0 ** torch.arange(-6, 2.01, 0.25, dtype=torch.float64)  # of the ridge, in mean eigenvalues of G


@dataclass(kw_only=True, eq=False)
class Analytic(SumsMethod):
    """Ridge regression from features to one-hot classes, solved exactly; optionally on random features.

    McDonnell et al., "RanPAC: Random Projections and Pre-trained Models for Continual Learning", NeurIPS 2023;
    Zhuang et al., "ACIL: Analytic Class-Incremental Learning with Absolute Memorization", NeurIPS 2022.

        W = (G + λ I)⁻¹ Q,    G = Σ h hᵀ,    Q = Σ h yᵀ,    h = x or relu(P x)

    The first scores after learning choose λ by generalised cross-validation (Golub et al., Technometrics 1979). One
    eigendecomposition of G serves all candidates. It needs no held-out sample, and depends on the sums alone.

    Args:
        width: how many random features there are; None for the features themselves.
        ridge: λ, if it is not to be chosen.
        form: `gram` solves for W after learning. `recursive` has G + λI inverted already and follows it batch by batch,
            which is faster where every batch is predicted; λ has to be given.
    """

    derived: ClassVar[frozenset[str]] = frozenset({"_solution", "_matrix"})

    reads: ClassVar[frozenset[str]] = SumsMethod.reads | {"_matrix"}

    width: Annotated[int, Field(ge=1, le=MAX_WIDTH)] | None = None
    ridge: Annotated[float, Field(gt=0)] | None = None
    form: Literal["gram", "recursive"] = "gram"

    def __post_init__(self) -> None:
        if self.form == "recursive" and self.ridge is None:
            raise ValueError("the recursive form cannot change its ridge: give one, or use form='gram'")
        super().__post_init__()
        self._matrix: Fixed | None = None  # P, drawn when it is first needed: what is only loaded draws none

    @property
    def n_summed(self) -> int:
        return self.width or self.n_features

    def transformed(self, features: Tensor) -> Tensor:
        if self.width is None:
            return features
        return project(features, self.matrix(self.width)).relu_()

    def matrix(self, width: int) -> Tensor:
        """(n_features, width) P, drawn when it is first needed."""
        if self._matrix is None:
            rng = torch.Generator().manual_seed(self.model.head.rng.initial_seed() ^ 1)
            self._matrix = Fixed((random_matrix(self.n_features, width, rng),))
        (matrix,) = self._matrix.tensors
        return matrix

    def observe(self, batch: Batch) -> float:
        features = self.described(batch.x)
        self.sums.add(features, batch.y)
        if self.form == "recursive" and self._solution is not None:
            inverse, weights = self._solution.tensors
            after = recursive_step(inverse, weights, features, batch.y.cpu())
            self._solution = Fixed(after, self.sums.n_samples)
        return 0.0

    def grow(self, n_classes: int) -> None:
        solution = self._solution
        super().grow(n_classes)
        if solution is not None:  # a class that is not there yet has zeros for its targets, hence for its weights
            *before, weights = solution.tensors
            more = weights.new_zeros(len(weights), n_classes - weights.shape[1])
            self._solution = Fixed((*before, torch.cat([weights, more], dim=1)), solution.n_samples)

    def work_out(self) -> None:
        if self._solution is None or self._solution.n_samples != self.sums.n_samples:
            self.sums.fold()
            self._solution = Fixed(self._solved(), self.sums.n_samples)

    def sum_scores(self, features: Tensor) -> Tensor:
        solution: Fixed = self._solution
        return features @ solution.tensors[-1]

    def _solved(self) -> tuple[Tensor, ...]:
        """W (n_summed, n_classes), after (G + λI)⁻¹ in the recursive form."""
        gram, targets = self.sums.gram(), self.sums.sums().T
        if self.ridge is None:
            eigenvalues, vectors = torch.linalg.eigh(gram)
            return (ridge_weights(eigenvalues.clamp(min=0), vectors, targets, self.sums.n_samples),)
        gram.diagonal().add_(self.ridge)
        factor = torch.linalg.cholesky(gram)
        if self.form == "gram":
            return (torch.cholesky_solve(targets, factor),)
        inverse = torch.cholesky_inverse(factor)
        return inverse, inverse @ targets


def ridge_weights(eigenvalues: Tensor, vectors: Tensor, targets: Tensor, n_samples: int) -> Tensor:
    """(d, n_classes) W with the ridge λ of the least generalised cross-validation error

        GCV(λ) = (|Y|² - Σ_i |q_i|² (w_i + 2λ) / (w_i + λ)²) / (1 - Σ_i w_i / (w_i + λ) / n)²

    where q = Vᵀ Q and G = V diag(w) Vᵀ. With one-hot classes, |Y|² is n.

    Args:
        eigenvalues, vectors: w (d,) and V (d, d).
        targets: Q (d, n_classes).
    """
    turned = vectors.T @ targets
    powers = turned.square().sum(dim=1)
    ridges = (CANDIDATES * eigenvalues.mean().clamp(min=1e-300))[:, None]
    left = n_samples - (powers * (eigenvalues + 2 * ridges) / (eigenvalues + ridges) ** 2).sum(dim=1)
    freedom = 1 - (eigenvalues / (eigenvalues + ridges)).sum(dim=1) / n_samples
    ridge = ridges[(left.clamp(min=0) / freedom.clamp(min=1e-9) ** 2).argmin()]
    return vectors @ (turned / (eigenvalues + ridge)[:, None])


def recursive_step(inverse: Tensor, weights: Tensor, features: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return (G + λI)⁻¹ and W after a batch, from those before it.

        R ← R - R Xᵀ (I + X R Xᵀ)⁻¹ X R,    W ← W + R Xᵀ (Y - X W)          ACIL, Eq. 11

    Args:
        inverse: R (d, d). weights: W (d, n_classes). features: X (n, d). y: (n,).
    """
    moved = features @ inverse
    inner = torch.eye(len(y), dtype=features.dtype) + moved @ features.T
    inverse = inverse - moved.T @ torch.linalg.solve(inner, moved)
    missing = -features @ weights
    missing[torch.arange(len(y)), y] += 1
    return inverse, weights + inverse @ features.T @ missing
