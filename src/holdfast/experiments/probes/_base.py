"""A probe measures while a run learns: it looks after a step or a task, and leaves a part of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from holdfast.core.batch import Batch
from holdfast.core.state import State, Stateful
from holdfast.experiments.experiment import Experiment
from holdfast.learner import Learner
from holdfast.streams._base import Stream, Task


@dataclass(frozen=True)
class Moment:
    """Position of a run, as plain data that travels between processes.

    Attributes:
        task: the task being learned, from 0.
        step: batches learned over all tasks.
        loss: of the last batch.
        accuracy: A_t after the last task that was tested; None before.

    Example:
        >>> Moment(task=0, n_tasks=2, step=1, n_steps=8, loss=0.5, accuracy=None).step
        1
    """

    task: int
    n_tasks: int
    step: int
    n_steps: int
    loss: float
    accuracy: float | None


@dataclass(frozen=True, eq=False)
class Plan:
    """Facts about a run that a probe may use.

    Attributes:
        folder: of the run's files.
        step: batches that were learned before this process began; more than 0 if the run was killed and continued.
        news: by name, what probes have measured at the moment that they look at just now.
    """

    experiment: Experiment
    stream: Stream
    folder: Path
    step: int
    news: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class Probe(Stateful):
    """Measures a run and changes nothing of what it learns.

    A subclass is a dataclass. Its fields are its options, and every other attribute is state, which checkpoints hold.
    All methods do nothing unless they are overridden. What they draw from torch's global generator is taken back.

    Attributes:
        follows: what the probe has to see from the beginning to leave a part. A run that was begun without the probe
            and has gone further leaves none.

    Example:
        >>> from dataclasses import field
        >>> @dataclass(kw_only=True, eq=False)
        ... class LargestLoss(Probe):
        ...     largest: float = field(default=0.0, init=False)
        ...
        ...     def after_step(self, learner, moment):
        ...         self.largest = max(self.largest, moment.loss)
        ...
        ...     def result(self):
        ...         return {"largest": self.largest}
        >>> probe = LargestLoss()
        >>> probe.after_step(None, Moment(task=0, n_tasks=1, step=1, n_steps=2, loss=0.5, accuracy=None))
        >>> probe.result()
        {'largest': 0.5}
    """

    follows: ClassVar[Literal["steps", "tasks", "nothing"]] = "steps"
    derived: ClassVar[frozenset[str]] = frozenset({"plan"})

    def __new__(cls, *_: Any, **__: Any) -> Self:
        probe = super().__new__(cls)
        for each in fields(cls):  # a dataclass leaves these to the class, but state is what an object has
            if not each.init and each.default is not MISSING:
                setattr(probe, each.name, each.default)
        return probe

    def begin(self, plan: Plan) -> None:
        """Take up a run: called once a process, after the state was restored."""
        self.plan = plan

    def before_step(self, learner: Learner, batch: Batch) -> None:
        """Look at the learner before it learns a batch."""

    def during_step(self, step: int) -> AbstractContextManager[None]:
        """Context manager: the learner learns batch number `step` inside."""
        return nullcontext()

    def after_step(self, learner: Learner, moment: Moment) -> None:
        """Look at the learner after it has learned a batch."""

    def after_task(self, learner: Learner, tests: Sequence[Task]) -> None:
        """Look at the learner after a task; `tests` are the tasks to test on, as a rule those learned."""

    def finish(self, learner: Learner) -> None:
        """Look once more at the end, when the last checkpoint is written."""

    def close(self) -> None:
        """Let go of files: called when the run ends or is stopped."""

    def publish(self, numbers: Mapping[str, float]) -> None:
        """Let loggers send numbers by name, which were measured just now."""
        if hasattr(self, "plan"):
            self.plan.news.update(numbers)

    def result(self) -> dict[str, Any]:
        """Return the part of the result, as JSON can hold it."""
        return {}

    def options(self) -> dict[str, Any]:
        """Return the options, which the part of the result states."""
        return {option.name: getattr(self, option.name) for option in fields(self) if option.init}

    def state_dict(self) -> State:
        options = {option.name for option in fields(self) if option.init}
        return {name: value for name, value in super().state_dict().items() if name not in options}


def in_turn(tests: Sequence[Task], n_before: int) -> bool:
    """Return whether tasks are learned one after the other, `n_before` so far: neither mixed into one nor blurred."""
    return len(tests) == n_before + 1 and tests[-1].id == n_before
