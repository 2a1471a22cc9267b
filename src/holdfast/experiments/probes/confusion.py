"""Confusion matrix: the class that each test sample is taken for at the end of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator

from holdfast.experiments.probes._base import Probe
from holdfast.experiments.probes.accuracy import predicted_classes
from holdfast.learner import Learner


class ConfusionPart(BaseModel):
    """Counts of test samples by their class and the class predicted for them, where there are any.

    Attributes:
        counts: (class, predicted class, samples), in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    options: dict[str, Any] = {}
    counts: list[tuple[int, int, int]]

    @model_validator(mode="after")
    def _counts_are_of_classes(self) -> Self:
        if any(min(y, predicted) < 0 or n < 1 for y, predicted, n in self.counts):
            raise ValueError("the confusion matrix has classes below 0, or counts below 1")
        places = [(y, predicted) for y, predicted, _ in self.counts]
        if len(set(places)) < len(places):
            raise ValueError("the confusion matrix counts a pair of classes twice")
        return self

    def by_class(self) -> dict[int, tuple[int, int]]:
        """Return by class the samples predicted rightly, and all samples.

        Example:
            >>> ConfusionPart(counts=[(0, 0, 3), (0, 1, 1), (1, 1, 2)]).by_class()
            {0: (3, 4), 1: (2, 2)}
        """
        found: dict[int, tuple[int, int]] = {}
        for y, predicted, n in self.counts:
            right, samples = found.get(y, (0, 0))
            found[y] = (right + n * (y == predicted), samples + n)
        return found


@dataclass(kw_only=True, eq=False)
class Confusion(Probe):
    """Confusion matrix at the end: the class that each test sample is taken for, and accuracy on each class."""

    follows: ClassVar = "nothing"

    counts: list[list[int]] = field(default_factory=list, init=False)

    def finish(self, learner: Learner) -> None:
        counted: Counter[tuple[int, int]] = Counter()
        stream = self.plan.stream
        for task in stream.tests(len(stream)):
            predicted = predicted_classes(learner, task.test).tolist()
            counted.update(zip(task.test.y.tolist(), predicted, strict=True))
        self.counts = [[*pair, n] for pair, n in sorted(counted.items())]

    def result(self) -> dict[str, Any]:
        return {"counts": self.counts}
