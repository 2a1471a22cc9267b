"""Prequential accuracy: every batch is predicted before it is learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator

from holdfast.core.batch import Batch
from holdfast.core.classes import predicts_by_task
from holdfast.core.state import Count, State
from holdfast.experiments.probes._base import Moment, Probe
from holdfast.learner import Learner

DIGITS = 5


class PrequentialPart(BaseModel):
    """Test-then-train over the whole stream, of n samples, and at k moments.

    Attributes:
        right, samples: samples predicted rightly, of all.
        steps: (k,) batches predicted by each moment.
        overall, window, faded: (k,) accuracy over all samples so far, over the last ones, and faded.
        by_class: by label, samples predicted rightly and samples.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    options: dict[str, Any]
    right: int
    samples: int
    steps: list[int]
    overall: list[float]
    window: list[float]
    faded: list[float]
    by_class: dict[str, tuple[int, int]]

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        curves = (self.overall, self.window, self.faded)
        if any(len(curve) != len(self.steps) for curve in curves):
            raise ValueError("the prequential curves have different lengths")
        if not all(0 <= value <= 1 for curve in curves for value in curve):
            raise ValueError("a prequential curve has accuracies that are no fractions of 1")
        counts = [(self.right, self.samples), *self.by_class.values()]
        if self.samples < 1 or not all(0 <= right <= n for right, n in counts):
            raise ValueError("more samples were predicted rightly than there are")
        return self

    @property
    def accuracy(self) -> float:
        return self.right / self.samples


@dataclass(kw_only=True, eq=False)
class Prequential(Probe):
    """Predict each batch before it is learned, as the learner stands then.

    The first batch counts as predicted wrongly. So does, in the setting `task`, a sample of a task whose classes are
    not known yet.

    Attributes:
        window: samples that the windowed accuracy is taken over.
        fading: weight of a sample relative to the one after it, in the faded accuracy.
        every: batches from one moment of the curves to the next.
    """

    follows: ClassVar = "steps"

    window: int = 1000
    fading: float = 0.999
    every: int = 100
    n_right: Count = field(default=0, init=False)
    n_samples: Count = field(default=0, init=False)
    recent: list[bool] = field(default_factory=list, init=False)
    faded_right: float = field(default=0.0, init=False)
    faded_samples: float = field(default=0.0, init=False)
    by_class: dict[int, list[int]] = field(default_factory=dict, init=False)  # samples predicted rightly, and all
    moments: list[list[float]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        for name in ("window", "every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give 1 or more")
        if not 0 < self.fading <= 1:
            raise ValueError(f"fading is {self.fading}: give a number above 0 and up to 1")

    def before_step(self, learner: Learner, batch: Batch) -> None:
        for right, y in zip(self._rightly(learner, batch), batch.y.tolist(), strict=True):
            self.n_right += right
            self.n_samples += 1
            self.recent.append(right)
            self.faded_right = right + self.fading * self.faded_right
            self.faded_samples = 1 + self.fading * self.faded_samples
            of_class = self.by_class.setdefault(y, [0, 0])
            of_class[0] += right
            of_class[1] += 1
        del self.recent[: -self.window]

    def after_step(self, learner: Learner, moment: Moment) -> None:
        if moment.step % self.every == 0 or moment.step == moment.n_steps:
            overall, window = self.n_right / self.n_samples, sum(self.recent) / len(self.recent)
            self.moments.append([moment.step, overall, window, self.faded_right / self.faded_samples])
            self.publish({"accuracy/prequential": window})

    def result(self) -> dict[str, Any]:
        return {
            "right": self.n_right,
            "samples": self.n_samples,
            "steps": [int(moment[0]) for moment in self.moments],
            **{
                name: [round(moment[i], DIGITS) for moment in self.moments]
                for i, name in enumerate(("overall", "window", "faded"), start=1)
            },
            "by_class": {str(y): (right, n) for y, (right, n) in sorted(self.by_class.items())},
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        counts = [(self.n_right, self.n_samples), *self.by_class.values()]
        if any(len(pair) != 2 or not 0 <= pair[0] <= pair[1] for pair in counts):
            raise ValueError("the saved state counts more samples as predicted rightly than there are")
        if any(len(moment) != 4 or not all(type(value) in (int, float) for value in moment) for moment in self.moments):
            raise ValueError("the saved moments are not of prequential accuracies")

    def _rightly(self, learner: Learner, batch: Batch) -> list[bool]:
        """Return for each sample of a batch whether the learner predicts it; False where it cannot know."""
        if not learner.n_observed:
            return [False] * len(batch)
        if not predicts_by_task(learner.settings.setting):
            found: list[bool] = (learner.predict(batch.x).cpu() == batch.y).tolist()
            return found
        known = [learner.method.model.seen.knows_task(task) for task in batch.task.tolist()]
        right = [False] * len(batch)
        if rows := [i for i, is_known in enumerate(known) if is_known]:
            predicted = learner.predict(batch.x[rows], batch.task[rows]).cpu()
            for i, is_right in zip(rows, (predicted == batch.y[rows]).tolist(), strict=True):
                right[i] = is_right
        return right
