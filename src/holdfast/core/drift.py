"""Drift of features and distance between tasks: the paper's two inequalities as numbers.

Both distances are in units of spread, the root-mean-square distance of features to their mean. They can thus be
compared between methods and backbones with features of different scale.
"""

from __future__ import annotations

from torch import Tensor


def spread(features: Tensor) -> float:
    """Root-mean-square distance of features (n, d) to their mean."""
    return float((features - features.mean(dim=0)).square().sum(dim=1).mean().sqrt())


def moved(now: Tensor, then: Tensor) -> float:
    """Return d(f_i^t, f_i^i) of Eq. dist1: the mean distance of samples from their earlier places, in earlier spreads.

    Args:
        now, then: (n, d) features of the same samples.
    """
    distance = float((now - then).square().sum(dim=1).sqrt().mean())
    return distance / max(spread(then), 1e-12)


def apart(one: Tensor, other: Tensor) -> float:
    """Return d(f_i^t, f_j^t) of Eq. dist2: the distance between two tasks' means, in their mean spread.

    Args:
        one, other: (n, d) and (m, d) features of the two tasks by the same model.
    """
    distance = float((one.mean(dim=0) - other.mean(dim=0)).square().sum().sqrt())
    return distance / max((spread(one) + spread(other)) / 2, 1e-12)
