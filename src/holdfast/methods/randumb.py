from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.methods._projection import MAX_WIDTH, project, random_matrix
from holdfast.methods._sums import Fixed
from holdfast.methods.slda import Slda


@dataclass(kw_only=True, eq=False)
class RanDumb(Slda):
    """Random Fourier features, and streaming discriminant analysis on them.

    Prabhu et al., "RanDumb: Random Representations Outperform Online Continually Learned Representations", NeurIPS
    2024.

        φ(x) = √(2/D) cos(√(2γ) P x / |x| + b),    P standard normal, b uniform in 0…2π

    approximates the kernel exp(-γ |x/|x| - x'/|x'||²). The scale of γ has to be known before the first sample, or
    the sums would depend on the order; there it is 1 / (d · the variance of all inputs), here samples have unit length.

    Args:
        width: D, how many features there are.
        gamma: γ.
    """

    derived: ClassVar[frozenset[str]] = frozenset({"_solution", "_drawn"})

    reads: ClassVar[frozenset[str]] = Slda.reads | {"_drawn"}

    width: Annotated[int, Field(ge=1, le=MAX_WIDTH)] = 2000
    gamma: Annotated[float, Field(gt=0)] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._drawn: Fixed | None = None

    @property
    def n_summed(self) -> int:
        return self.width

    def matrix_and_phases(self) -> tuple[Tensor, Tensor]:
        """P (n_features, width) and b (width,), drawn when they are first needed: what is only loaded draws none."""
        if self._drawn is None:
            rng = torch.Generator().manual_seed(self.model.head.rng.initial_seed() ^ 1)
            matrix = random_matrix(self.n_features, self.width, rng)
            self._drawn = Fixed((matrix, 2 * math.pi * torch.rand(self.width, generator=rng, dtype=torch.float64)))
        matrix, phases = self._drawn.tensors
        return matrix, phases

    def transformed(self, features: Tensor) -> Tensor:
        matrix, phases = self.matrix_and_phases()
        lengths = torch.linalg.vector_norm(features, dim=1, keepdim=True).clamp_min(1e-30)
        # Rounded to float32: what is below may differ with the place of a sample in its batch.
        unit = features / lengths.float().double()
        waves = torch.cos(math.sqrt(2 * self.gamma) * project(unit, matrix) + phases)
        return (math.sqrt(2 / self.width) * waves).float().double()
