"""Accuracy while a stream is learned, from plain arrays.

Two kinds of input stand for all of it. A learning curve has the accuracy on held-out samples at several moments. A
prequential record says of each sample of the stream whether it was predicted rightly before it was learned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def area_under_accuracy(n_samples: ArrayLike, accuracies: ArrayLike) -> float:
    """Return A_AUC: the mean accuracy over the samples of the stream.

        A_AUC = Σ_i f(i Δn) Δn / n

    Koh et al., "Online Continual Learning on Class Incremental Blurry Task Configuration", ICLR 2022. Moments need not
    be equally far apart: each accuracy counts for the samples that were learned since the moment before.

    Args:
        n_samples: (k,) samples learned at each moment, increasing.
        accuracies: (k,) accuracy over all classes seen by then.

    Example:
        >>> area_under_accuracy([100, 200, 400], [0.9, 0.7, 0.5])
        0.65
    """
    n, a = _vector(n_samples, "n_samples"), _accuracies(accuracies)
    if n.shape != a.shape:
        raise ValueError(f"{len(n)} moments for {len(a)} accuracies: give one accuracy a moment")
    steps = np.diff(n, prepend=0.0)
    if not (steps > 0).all():
        raise ValueError("n_samples does not increase: give the samples learned at each moment, in order")
    return float((a * steps).sum() / n[-1])


def average_anytime_accuracy(curve: ArrayLike) -> float:
    """Return AAA: the mean over all moments of the mean accuracy over the tasks seen by then.

    Caccia et al., "New Insights on Reducing Abrupt Representation Change in Online Continual Learning", ICLR 2022.

    Args:
        curve: (k, n_tasks) accuracy on each task at each moment; NaN for tasks not seen yet.

    Example:
        >>> nan = float("nan")
        >>> average_anytime_accuracy([[0.8, nan], [0.6, 0.9]])
        0.775
    """
    a = _curve(curve)
    if np.isnan(a).all(axis=1).any():
        raise ValueError("a moment has no accuracy at all: leave it out")
    return float(np.nanmean(a, axis=1).mean())


def minimum_accuracy(curve: ArrayLike, learned: ArrayLike) -> float:
    """Return min-ACC: the mean over old tasks of the worst accuracy since each was learned; NaN for a first task.

        min-ACC = 1/(k-1) Σ_{i < k} min_{t_i < n ≤ t_k} a[n, i]

    De Lange et al., "Continual Evaluation for Lifelong Learning: Identifying the Stability Gap", ICLR 2023.

    Args:
        curve: (m, k) accuracy on each task at each moment, NaN where not measured.
        learned: (k,) the moment (row of `curve`) at which each task had just been learned, increasing.

    Example:
        >>> nan = float("nan")
        >>> minimum_accuracy([[0.9, nan], [0.5, 0.3], [0.7, 0.8]], learned=[0, 2])
        0.5
    """
    a, moments = _curve(curve), _moments(learned, curve)
    if len(moments) == 1:
        return float("nan")
    worst = []
    for task, moment in enumerate(moments[:-1]):
        since = a[moment + 1 : moments[-1] + 1, task]
        if np.isnan(since).all():
            raise ValueError(f"task {task} was not measured after it was learned")
        worst.append(np.nanmin(since))
    return float(np.mean(worst))


def worst_case_accuracy(curve: ArrayLike, learned: ArrayLike) -> float:
    """Return WC-ACC: the accuracy on the newest task and the worst ones on the old tasks, weighted by their number.

        WC-ACC = 1/k a[t_k, k] + (1 - 1/k) min-ACC

    De Lange et al., as `minimum_accuracy`, with the same arguments.

    Example:
        >>> nan = float("nan")
        >>> round(worst_case_accuracy([[0.9, nan], [0.5, 0.3], [0.7, 0.8]], learned=[0, 2]), 3)
        0.65
    """
    a, moments = _curve(curve), _moments(learned, curve)
    k = len(moments)
    newest = float(a[moments[-1], k - 1])
    return newest if k == 1 else newest / k + (1 - 1 / k) * minimum_accuracy(curve, learned)


def prequential_accuracy(right: ArrayLike) -> float:
    """Return the share of samples that were predicted rightly before they were learned.

    Example:
        >>> prequential_accuracy([True, False, True, True])
        0.75
    """
    return float(_right(right).mean())


def windowed_accuracy(right: ArrayLike, window: int) -> Array:
    """Return (n,) the prequential accuracy over the last `window` samples, over all while there are fewer.

    Example:
        >>> windowed_accuracy([True, True, False, False], window=2).tolist()
        [1.0, 1.0, 0.5, 0.0]
    """
    if window < 1:
        raise ValueError(f"window is {window}: give 1 or more")
    sums = np.concatenate([[0.0], _right(right).cumsum()])
    end = np.arange(1, len(sums))
    begin = np.maximum(end - window, 0)
    shares: Array = (sums[end] - sums[begin]) / (end - begin)
    return shares


def faded_accuracy(right: ArrayLike, fading: float = 0.999) -> Array:
    """Return (n,) the prequential accuracy in which a sample counts `fading` times the one after it.

    Gama et al., "On evaluating stream learning algorithms", Machine Learning 2013.

        S_i = r_i + α S_{i-1},  B_i = 1 + α B_{i-1},  E_i = S_i / B_i

    Example:
        >>> faded_accuracy([True, False], fading=0.5).round(3).tolist()
        [1.0, 0.333]
    """
    if not 0 < fading <= 1:
        raise ValueError(f"fading is {fading}: give a number above 0 and up to 1")
    values = np.empty(len(_right(right)))
    total = weight = 0.0
    for i, r in enumerate(_right(right).tolist()):
        total, weight = r + fading * total, 1 + fading * weight
        values[i] = total / weight
    return values


def accuracy_by_class(right: ArrayLike, y: ArrayLike) -> dict[Any, float]:
    """Return the prequential accuracy of each class, by label.

    Example:
        >>> accuracy_by_class([True, False, True], ["cat", "cat", "dog"])
        {'cat': 0.5, 'dog': 1.0}
    """
    r, labels = _right(right), np.asarray(y)
    if labels.shape != r.shape:
        raise ValueError(f"{len(labels)} labels for {len(r)} samples: give one a sample")
    return {label: float(r[labels == label].mean()) for label in np.unique(labels).tolist()}


def _vector(values: ArrayLike, name: str) -> Array:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not len(vector):
        raise ValueError(f"{name} has shape {vector.shape}: give a list of one number or more")
    return vector


def _accuracies(values: ArrayLike) -> Array:
    a = _vector(values, "accuracies")
    if not ((a >= 0) & (a <= 1)).all():
        raise ValueError(f"accuracies reach from {a.min()} to {a.max()}: give fractions of 1")
    return a


def _right(right: ArrayLike) -> Array:
    r = np.asarray(right)
    if r.ndim != 1 or not len(r) or not np.isin(r, (0, 1)).all():
        raise ValueError("right is no list of true and false: give one a sample, in the order of the stream")
    return r.astype(np.float64)


def _curve(curve: ArrayLike) -> Array:
    a = np.asarray(curve, dtype=np.float64)
    if a.ndim != 2 or not a.size:
        raise ValueError(f"curve has shape {a.shape}: give a row for each moment, a column for each task")
    measured = a[~np.isnan(a)]
    if measured.size and (measured.min() < 0 or measured.max() > 1):
        raise ValueError(f"accuracies reach from {measured.min()} to {measured.max()}: give fractions of 1")
    return a


def _moments(learned: ArrayLike, curve: ArrayLike) -> list[int]:
    """Return the moments at which tasks were learned; checked against the curve."""
    moments = np.asarray(learned)
    n_moments, n_tasks = np.asarray(curve).shape
    fits = moments.ndim == 1 and 1 <= len(moments) <= n_tasks and np.issubdtype(moments.dtype, np.integer)
    if not fits or moments[0] < 0 or moments[-1] >= n_moments or not (np.diff(moments) > 0).all():
        raise ValueError(
            f"learned is {moments.tolist()}: give rows of the curve in order, one for each of up to {n_tasks} tasks"
        )
    return [int(moment) for moment in moments]
