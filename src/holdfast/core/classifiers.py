"""Classifying by the nearest class mean."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def class_means(features: Tensor, y: Tensor, n_classes: int, weights: Tensor | None = None) -> Tensor:
    """Return (n_classes, d) unit vectors: the mean direction of each class's features; zero without any.

    Args:
        features: (n, d). y: (n,). weights: (n,) how much each row counts; by default all the same.
    """
    unit = F.normalize(features, dim=1)
    if weights is not None:
        unit = unit * weights[:, None].to(unit.dtype)
    sums = torch.zeros(n_classes, features.shape[1], dtype=unit.dtype, device=unit.device)
    return F.normalize(sums.index_add_(0, y, unit), dim=1)


def nearest_mean_scores(features: Tensor, means: Tensor) -> Tensor:
    """Return (n, n_classes), the cosine of features (n, d) with each class's mean; -1 where there is no mean."""
    scores = F.normalize(features, dim=1) @ means.T
    return scores.masked_fill(~means.any(dim=1), -1.0)
