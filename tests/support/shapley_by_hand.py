"""Shapley values by their definition: the mean of what a sample adds to every coalition of the others."""

from __future__ import annotations

from itertools import combinations
from math import comb

from torch import Tensor


def worth(coalition: tuple[int, ...], x: Tensor, y: Tensor, point: Tensor, label: int, k: int) -> float:
    """How many of the k members nearest to the point have its class, over k."""
    nearest = sorted(coalition, key=lambda i: (float((x[i] - point).norm()), i))[:k]
    return sum(int(y[i]) == label for i in nearest) / k


def shapley_by_hand(x: Tensor, y: Tensor, point: Tensor, label: int, k: int) -> list[float]:
    n = len(y)
    values = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        value = 0.0
        for size in range(n):
            for coalition in combinations(others, size):
                with_i = worth((*coalition, i), x, y, point, label, k)
                value += (with_i - worth(coalition, x, y, point, label, k)) / (n * comb(n - 1, size))
        values.append(value)
    return values
