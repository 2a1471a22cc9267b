"""Learning curve: accuracy and loss every few batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict, model_validator

from holdfast.core.batch import Batch
from holdfast.core.state import Count, State
from holdfast.experiments.probes._base import Moment, Probe
from holdfast.experiments.probes.accuracy import accuracy_of, predicted_rightly
from holdfast.learner import Learner
from holdfast.streams._base import Samples, Task

DIGITS = 5  # that are stored of an accuracy: test sets have at most some ten thousand samples


class CurvePart(BaseModel):
    """A learning curve of k moments.

    Attributes:
        steps, samples: (k,) batches and samples learned.
        accuracies: (k, tasks) accuracy on each task to test on; None for a task of which nothing was learned.
        seen: (k,) accuracy over the test samples of all classes learned by then.
        losses: (k,) mean loss of the batches since the moment before; None if there are none.
        learned: the moment at which each task had just been learned.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    options: dict[str, Any]
    steps: list[int]
    samples: list[int]
    accuracies: list[list[float | None]]
    seen: list[float]
    losses: list[float | None]
    learned: list[int]

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        k = len(self.steps)
        if {len(self.samples), len(self.accuracies), len(self.seen), len(self.losses)} != {k}:
            raise ValueError("the parts of the curve have different lengths")
        for name in ("steps", "samples", "learned"):
            values = getattr(self, name)
            if any(a >= b for a, b in zip([-1, *values], values, strict=False)):
                raise ValueError(f"{name} of the curve does not increase")
        if self.learned and self.learned[-1] >= k:
            raise ValueError("a task of the curve was learned after its end")
        rows: list[list[float | None]] = [*self.accuracies, list(self.seen)]
        if not all(0 <= value <= 1 for row in rows for value in row if value is not None):
            raise ValueError("the curve has accuracies that are no fractions of 1")
        return self


@dataclass(kw_only=True, eq=False)
class Curve(Probe):
    """Accuracy on the tasks so far, the running one among them, and the mean loss, every few batches.

    There is a moment at the end of each task too.

    Attributes:
        every: batches from one moment to the next.
        test_samples: of each task at most so many are tested, evenly over its test set; None for all.
    """

    every: int = 100
    test_samples: int | None = None
    task: Count = field(default=0, init=False)
    step: Count = field(default=0, init=False)
    n_samples: Count = field(default=0, init=False)
    losses: list[float] = field(default_factory=list, init=False)  # since the last moment
    moments: list[dict[str, Any]] = field(default_factory=list, init=False)
    learned: list[int] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every is {self.every}: give 1 or more")
        if self.test_samples is not None and self.test_samples < 1:
            raise ValueError(f"test_samples is {self.test_samples}: give 1 or more, or none for all")

    def before_step(self, learner: Learner, batch: Batch) -> None:
        self.n_samples += len(batch)

    def after_step(self, learner: Learner, moment: Moment) -> None:
        self.task, self.step = moment.task, moment.step
        self.losses.append(moment.loss)
        if moment.step % self.every == 0:
            self._measure(learner, self.plan.stream.tests(moment.task + 1))

    def after_task(self, learner: Learner, tests: Sequence[Task]) -> None:
        if self.moments and self.moments[-1]["step"] == self.step:  # the end of the task may have changed the model
            self.losses = [self.moments.pop()["loss"]]
        self._measure(learner, tests)
        self.learned.append(len(self.moments) - 1)

    def result(self) -> dict[str, Any]:
        names = {"steps": "step", "samples": "samples", "accuracies": "accuracies", "seen": "seen", "losses": "loss"}
        columns = {column: [moment[name] for moment in self.moments] for column, name in names.items()}
        return columns | {"learned": self.learned}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        if any(moment.keys() != {"step", "samples", "accuracies", "seen", "loss"} for moment in self.moments):
            raise ValueError("the saved moments are not of a learning curve")

    def _measure(self, learner: Learner, tests: Sequence[Task]) -> None:
        model = learner.method.model
        is_learned = model.seen.all_learned().cpu()
        accuracies: list[float | None] = []
        n_right = n_seen = 0
        for task in tests:
            samples = self._tested(task.test)
            if not model.seen.knows_task(task.id):
                accuracies.append(None)
                continue
            right = predicted_rightly(learner, samples)
            has_learned = is_learned[samples.y]
            n_right, n_seen = n_right + int(right[has_learned].sum()), n_seen + int(has_learned.sum())
            tested = Task(task.id, tuple(sorted(set(samples.y.tolist()))), task.train, samples)
            accuracies.append(round(accuracy_of(right, tested, self.plan.stream), DIGITS))
        self.moments.append(
            {
                "step": self.step,
                "samples": self.n_samples,
                "accuracies": accuracies,
                "seen": round(n_right / max(n_seen, 1), DIGITS),
                "loss": sum(self.losses) / len(self.losses) if self.losses else None,
            }
        )
        self.publish({"accuracy/seen": self.moments[-1]["seen"]})
        self.losses = []

    def _tested(self, samples: Samples) -> Samples:
        n = len(samples)
        if self.test_samples is None or n <= self.test_samples:
            return samples
        return samples.only(torch.arange(self.test_samples) * n // self.test_samples)
