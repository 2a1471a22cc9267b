"""Drift over a run: movement of held-out samples of old tasks after each task, and distance between tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.core.drift import apart, moved
from holdfast.core.state import State, check_tensor
from holdfast.experiments.probes._base import Probe, in_turn
from holdfast.learner import Learner
from holdfast.streams._base import Task

SAMPLES_PER_TASK = 200  # of the test samples: enough for a mean, little beside testing


@dataclass(kw_only=True, eq=False)
class Drift(Probe):
    """Distances in the space of features; none where tasks are learned all at once.

    Attributes:
        when_learned: (n, d) features of each task when it was just learned.
        moved: [t][i] how far task i is, after task t, from where it was when learned; 0 for i = t.
        apart: [t][i][j] how far tasks i > j are apart after task t.
    """

    follows: ClassVar = "tasks"

    when_learned: list[Tensor] = field(default_factory=list, init=False)
    moved: list[list[float]] = field(default_factory=list, init=False)
    apart: list[list[list[float]]] = field(default_factory=list, init=False)

    def after_task(self, learner: Learner, tests: Sequence[Task]) -> None:
        if not in_turn(tests, len(self.moved)):
            return
        now = [learner.features(task.test[_spread_over(len(task.test))].x) for task in tests]
        if any(then.shape != of_now.shape for of_now, then in zip(now, self.when_learned, strict=False)):
            raise ValueError("the saved features of a task are not those of its samples")
        self.when_learned.append(now[-1])
        self.moved.append([round(moved(f, then), 4) for f, then in zip(now, self.when_learned, strict=True)])
        self.publish({"drift/task_1": self.moved[-1][0]})
        self.apart.append([[round(apart(now[i], now[j]), 4) for j in range(i)] for i in range(len(now))])

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        features = self.when_learned
        for each in features:
            check_tensor(each, like=features[0][:0], name="the saved features of a task")
        if any(each.ndim != 2 or not each.is_floating_point() for each in features):
            raise ValueError("the saved features of a task are not rows of numbers")
        if not len(features) == len(self.moved) == len(self.apart):
            raise ValueError("the saved features and distances are not of the same tasks")

    def result(self) -> dict[str, Any]:
        return {"moved": self.moved, "apart": self.apart}


def _spread_over(n: int) -> Tensor:
    """Return rows evenly over n, since test sets may be sorted by class."""
    k = min(n, SAMPLES_PER_TASK)
    return torch.arange(k) * n // k
