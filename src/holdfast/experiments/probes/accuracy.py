"""Accuracy on each task after each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from holdfast.core.classes import predicts_by_task
from holdfast.core.model import PREDICT_SIZE
from holdfast.experiments.probes._base import Probe
from holdfast.learner import Learner
from holdfast.streams._base import Stream, Task


@dataclass(kw_only=True, eq=False)
class Accuracy(Probe):
    """Accuracy on each task after each task.

    Attributes:
        accuracies: a row for each task learned, a column for each task tested.
    """

    follows: ClassVar = "tasks"

    accuracies: list[list[float]] = field(default_factory=list, init=False)

    def after_task(self, learner: Learner, tests: Sequence[Task]) -> None:
        self.accuracies.append([measured_accuracy(learner, task, self.plan.stream) for task in tests])

    @property
    def average(self) -> float | None:
        """A_t after the last task; None before the first is learned."""
        return sum(self.accuracies[-1]) / len(self.accuracies[-1]) if self.accuracies else None

    def latest(self) -> dict[str, float]:
        if not self.accuracies:
            return {}
        by_task = {f"accuracy/task_{i + 1}": value for i, value in enumerate(self.accuracies[-1])}
        return {"accuracy": sum(by_task.values()) / len(by_task), **by_task}

    def result(self) -> dict[str, Any]:
        n_tests = max((len(row) for row in self.accuracies), default=0)
        return {"accuracies": [[*row, *[None] * (n_tests - len(row))] for row in self.accuracies]}


def measured_accuracy(learner: Learner, task: Task, stream: Stream) -> float:
    """Accuracy on the test samples of `task`: over samples, or the mean over classes where the stream says so."""
    by_task = predicts_by_task(learner.settings.setting)
    right = torch.empty(len(task.test), dtype=torch.bool)
    for i in range(0, len(task.test), PREDICT_SIZE):
        batch = task.test[i : i + PREDICT_SIZE]
        predicted = learner.predict(batch.x, batch.task if by_task else None).cpu()
        right[i : i + PREDICT_SIZE] = predicted == batch.y
    if not stream.per_class_accuracy:
        return right.double().mean().item()
    return sum(right[task.test.y == c].double().mean().item() for c in task.classes) / len(task.classes)
