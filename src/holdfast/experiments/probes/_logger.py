"""A logger sends the numbers of a run to another program while it learns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.experiments.probes._base import Moment, Plan, Probe
from holdfast.learner import Learner
from holdfast.streams._base import Task


@dataclass(kw_only=True, eq=False)
class Logger(Probe):
    """Sends the loss every few batches, and what other probes have measured as soon as it is new.

    A run that was killed and continued logs no batch twice: it learns the batches since its last checkpoint again, and
    what the log has of them already is the same to the bit.

    Attributes:
        to: where the log goes; '' where there is a usual place.
        every: batches between two losses.
        sent: by name, the numbers that were sent last.
    """

    follows: ClassVar = "nothing"
    place: ClassVar[str] = "PLACE"  # what a user has to write after the name

    to: str = ""
    every: int = 10
    step: int = field(default=0, init=False)
    sent: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every is {self.every}: give 1 or more")

    def begin(self, plan: Plan) -> None:
        super().begin(plan)
        self.open(plan)

    def after_step(self, learner: Learner, moment: Moment) -> None:
        self.step = moment.step
        losses = {"loss": moment.loss} if moment.step % self.every == 0 else {}
        if values := losses | self._news():
            self.log(moment.step, values)

    def after_task(self, learner: Learner, tests: Sequence[Task]) -> None:
        if values := self._news():
            self.log(self.step, values)

    def options(self) -> dict[str, Any]:
        return {}  # a place may hold a password, and a log is no part of the result

    @abstractmethod
    def open(self, plan: Plan) -> None:
        """Begin a log, or go on with the one of this run."""

    @abstractmethod
    def log(self, step: int, values: dict[str, float]) -> None:
        """Send numbers by name, measured after batch number `step`."""

    def _news(self) -> dict[str, float]:
        """Return what other probes have measured since it was sent last."""
        now = {name: value for probe in self.plan.probes.values() for name, value in probe.latest().items()}
        now.pop("seconds", None)  # which is new every time
        news = {name: value for name, value in now.items() if self.sent.get(name) != value}
        self.sent |= news
        return news
