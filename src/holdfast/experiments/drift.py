"""Drift over a run: how far held-out samples of old tasks have moved after each task, and how far tasks are apart."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.core.drift import apart, moved
from holdfast.core.state import Stateful
from holdfast.learner import Learner
from holdfast.streams._base import Task

SAMPLES_PER_TASK = 200  # of the test samples: enough for a mean, little beside testing


class DriftRecord(Stateful):
    """Rows that grow with the tasks.

    Attributes:
        moved: [t][i] how far task i is, after task t, from where it was when learned; 0 for i = t.
        apart: [t][i][j] how far tasks i > j are apart after task t.
    """

    when_learned: list[Tensor]  # (n, d) features of each task
    moved: list[list[float]]
    apart: list[list[list[float]]]

    def __init__(self) -> None:
        self.when_learned, self.moved, self.apart = [], [], []

    def add(self, learner: Learner, tasks: list[Task]) -> None:
        """Look at all of `tasks`, the last of which has just been learned."""
        now = [learner.features(task.test[_spread_over(len(task.test))].x) for task in tasks]
        self.when_learned.append(now[-1])
        self.moved.append([round(moved(f, then), 4) for f, then in zip(now, self.when_learned, strict=True)])
        self.apart.append([[round(apart(now[i], now[j]), 4) for j in range(i)] for i in range(len(now))])


def _spread_over(n: int) -> Tensor:
    """Rows evenly over n, since test sets may be sorted by class."""
    k = min(n, SAMPLES_PER_TASK)
    return torch.arange(k) * n // k
