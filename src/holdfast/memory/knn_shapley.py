"""Value of samples to a nearest-neighbour classifier, and samples of all classes to measure it with."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.memory.storage import Memory


def knn_shapley(features: Tensor, y: Tensor, *, eval_features: Tensor, eval_y: Tensor, k: int) -> Tensor:
    """Return the Shapley value of each sample for classifying each evaluation point by its k nearest neighbours.

    A set of samples is worth the number of right ones among its k nearest to the point, over k. With samples sorted by
    their distance to the point, the nearest first,

        s_N = 1[y_N = y] / N
        s_m = s_{m+1} + (1[y_m = y] - 1[y_{m+1} = y]) min(k, m) / (k m)

    Jia et al., "Efficient Task-Specific Data Valuation for Nearest Neighbor Algorithms", VLDB 2019, Theorem 1. That has
    N ≥ k; s_N = 1[y_N = y] min(k, N) / (k N) holds for fewer samples too.

    Args:
        features: (n, d). y: (n,). eval_features: (m, d). eval_y: (m,).

    Returns:
        (m, n), a row an evaluation point.
    """
    n = len(y)
    order = torch.cdist(eval_features, features).argsort(dim=1, stable=True)
    right = (y[order] == eval_y[:, None]).to(features.dtype)
    rank = torch.arange(1, n + 1, dtype=features.dtype, device=features.device)
    steps = -right.diff(dim=1, append=right.new_zeros(len(right), 1)) * rank.clamp(max=k) / (k * rank)
    values = steps.flip(1).cumsum(dim=1).flip(1)
    return torch.empty_like(values).scatter_(1, order, values)


def class_numbers(task: Tensor, y: Tensor) -> Tensor:
    """Return (n,), a number from 0 on for each class of each task."""
    numbers: Tensor = torch.unique(task * (y.max() + 1) + y, return_inverse=True)[1]
    return numbers


def balanced_order(memory: Memory) -> Tensor:
    """Return all filled slots in random order; a class comes again only when each class has come as often.

    So the first few, however many, are a draw that is balanced between the classes of each task.
    """
    shuffled = torch.randperm(len(memory), generator=memory.rng)
    number = class_numbers(memory.task.cpu(), memory.y.cpu())[shuffled]
    by_class = number.argsort(stable=True)
    counts = number.bincount()
    first = counts.cumsum(0) - counts
    turn = torch.empty_like(number)
    turn[by_class] = torch.arange(len(number)) - first[number[by_class]]
    return shuffled[turn.argsort(stable=True)].to(memory.device)
