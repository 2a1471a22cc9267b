"""Accuracy, forgetting and remembering, from a matrix of accuracies.

Everywhere a[t, j] is the accuracy on task j once task t was learned, in [0, 1]; entries that were not measured
(j > t, as a rule) are NaN. Tasks count from 0 here and from 1 in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]


def average_accuracy(accuracies: ArrayLike, t: int = -1) -> float:
    """Return A_t: mean accuracy on the tasks measured once task t was learned; by default the last.

    A_t = 1/t Σ_{j ≤ t} a[t, j]. A matrix with one row (joint training) may measure any number of tasks.

    Example:
        >>> round(average_accuracy([[1.0, 0.0], [0.6, 0.8]]), 3)
        0.7
    """
    a = checked_matrix(accuracies)
    row = a[t] if len(a) == 1 else a[t, : _index(t, len(a)) + 1]
    return float(row.mean())


def forgetting(accuracies: ArrayLike, t: int = -1) -> float:
    """Return F_t: mean drop of each earlier task from its best accuracy to the present one; NaN for the first task.

    F_t = 1/(t-1) Σ_{j < t} ( max_{l < t} a[l, j] - a[t, j] ). Negative where old tasks got better.

    Example:
        >>> round(forgetting([[1.0, 0.0], [0.6, 0.8]]), 3)
        0.4
    """
    a = _square(accuracies)
    t = _index(t, len(a))
    if t == 0:
        return float("nan")
    best = np.array([np.nanmax(a[:t, j]) for j in range(t)])
    return float((best - a[t, :t]).mean())


def long_term_remembering(accuracies: ArrayLike) -> float:
    """Return LTR: loss of accuracy since a task was learned, weighted by its age in tasks; 0 is best.

    LTR = -1/(T-1) Σ_{j < T} (T - j) min(0, a[T, j] - a[j, j]).

    Example:
        >>> round(long_term_remembering([[1.0, 0.0, 0.0], [1.0, 0.9, 0.0], [0.7, 0.9, 0.8]]), 3)
        0.3
    """
    a = _square(accuracies)
    last = len(a) - 1
    if last == 0:
        return float("nan")
    j = np.arange(last)
    return float(-((last - j) * np.minimum(0, a[last, :last] - a[j, j])).sum() / last)


def learning_accuracy(accuracies: ArrayLike) -> float:
    """Mean accuracy on each task when it had just been learned: the mean of a[j, j]."""
    return float(np.diagonal(_square(accuracies)).mean())


def summary(accuracies: ArrayLike) -> dict[str, float]:
    """Return all metrics by name; for joint training, without those that need every task learned in turn."""
    a = checked_matrix(accuracies)
    metrics = {"average_accuracy": average_accuracy(a)}
    if a.shape[0] == a.shape[1]:
        metrics |= {
            "forgetting": forgetting(a),
            "long_term_remembering": long_term_remembering(a),
            "learning_accuracy": learning_accuracy(a),
        }
    return {name: value for name, value in metrics.items() if not np.isnan(value)}


def checked_matrix(accuracies: Any) -> Matrix:
    """Return accuracies as a matrix; ValueError if they are none, or no fractions of 1."""
    a = np.array(accuracies, dtype=np.float64)
    if a.ndim != 2 or a.size == 0:
        raise ValueError(f"accuracies have shape {a.shape}: give a matrix, a row for each task learned")
    measured = a[~np.isnan(a)]
    if measured.size and (measured.min() < 0 or measured.max() > 1):
        raise ValueError(f"accuracies reach from {measured.min()} to {measured.max()}: give fractions of 1")
    return a


def _square(accuracies: Any) -> Matrix:
    a = checked_matrix(accuracies)
    if a.shape[0] != a.shape[1]:
        raise ValueError(f"accuracies have shape {a.shape}: this metric needs every task learned in turn (square)")
    if np.isnan(a[np.tril_indices(len(a))]).any():
        raise ValueError("accuracies of tasks already learned are missing (NaN on or below the diagonal)")
    return a


def _index(t: int, n: int) -> int:
    if not -n <= t < n:
        raise ValueError(f"task {t}, but {n} tasks were learned")
    return t % n
