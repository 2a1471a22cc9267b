"""Accuracy on each task after each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.core.classes import predicts_by_task
from holdfast.core.model import PREDICT_SIZE
from holdfast.experiments.probes._base import Probe
from holdfast.learner import Learner
from holdfast.streams._base import Samples, Stream, Task


@dataclass(kw_only=True, eq=False)
class Accuracy(Probe):
    """Accuracy on each task after each task.

    Attributes:
        accuracies: a row for each task learned, a column for each task tested.
    """

    follows: ClassVar = "tasks"

    accuracies: list[list[float]] = field(default_factory=list, init=False)

    def after_task(self, learner: Learner, tests: Sequence[Task]) -> None:
        row = [measured_accuracy(learner, task, self.plan.stream) for task in tests]
        self.accuracies.append(row)
        self.publish({"accuracy/average": sum(row) / len(row)})
        self.publish({f"accuracy/task_{i}": value for i, value in enumerate(row, start=1)})

    @property
    def average(self) -> float | None:
        """A_t after the last task; None before the first is learned."""
        return sum(self.accuracies[-1]) / len(self.accuracies[-1]) if self.accuracies else None

    def result(self) -> dict[str, Any]:
        n_tests = max((len(row) for row in self.accuracies), default=0)
        return {"accuracies": [[*row, *[None] * (n_tests - len(row))] for row in self.accuracies]}


def measured_accuracy(learner: Learner, task: Task, stream: Stream) -> float:
    """Return the accuracy on the test samples of `task`, averaged over classes where the stream says so."""
    return accuracy_of(predicted_rightly(learner, task.test), task, stream)


def accuracy_of(right: Tensor, task: Task, stream: Stream) -> float:
    """Return the accuracy on `task`, of whose n test samples `right` (n,) says which were predicted rightly."""
    if not stream.per_class_accuracy:
        return right.double().mean().item()
    return sum(right[task.test.y == c].double().mean().item() for c in task.classes) / len(task.classes)


def predicted_rightly(learner: Learner, samples: Samples) -> Tensor:
    """Return (n,) true for each of n samples whose class the learner predicts."""
    return predicted_classes(learner, samples) == samples.y


def predicted_classes(learner: Learner, samples: Samples) -> Tensor:
    """Return (n,) the classes that the learner predicts for n samples."""
    by_task = predicts_by_task(learner.settings.setting)
    predicted = torch.empty(len(samples), dtype=torch.int64)
    for i in range(0, len(samples), PREDICT_SIZE):
        batch = samples[i : i + PREDICT_SIZE]
        predicted[i : i + PREDICT_SIZE] = learner.predict(batch.x, batch.task if by_task else None).cpu()
    return predicted
