"""Solutions of the same problems by others."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import nnls
from torch import Tensor


def gem_by_nnls(g: Tensor, references: Tensor, gamma: float, ridge: float) -> np.ndarray:
    """The dual as least squares: |[Gᵀ; √ridge I] v + [g; 0]|² over v ≥ γ; G Gᵀ is never formed."""
    n_tasks = len(references)
    a = np.vstack([references.numpy().T, math.sqrt(ridge) * np.eye(n_tasks)])
    b = -np.concatenate([g.numpy(), np.zeros(n_tasks)])
    v = gamma + nnls(a, b - gamma * a.sum(axis=1))[0]
    return g.numpy() + v @ references.numpy()
