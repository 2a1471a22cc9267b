"""A logger sends the numbers of a run to another program while it learns."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.core.extras import how_to_install
from holdfast.experiments.probes._base import Moment, Plan, Probe
from holdfast.learner import Learner
from holdfast.streams._base import Task

Logged = set[tuple[str, int]]  # name and step of each number in a log


@dataclass(kw_only=True, eq=False)
class Logger(Probe):
    """Sends the loss every few batches, and what other probes publish.

    A run that was killed and continued learns the batches since its last checkpoint again. Numbers of theirs that the
    log has already are the same to the bit, and are not sent twice.

    Attributes:
        to: where the log goes; '' where there is a usual place.
        every: batches between two losses.
    """

    follows: ClassVar = "nothing"
    derived: ClassVar = Probe.derived | {"logged"}
    place: ClassVar[str] = "PLACE"  # that a user writes after the name of a logger
    needs_place: ClassVar[bool] = True

    to: str = ""
    every: int = 10
    step: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every is {self.every}: give 1 or more")

    def begin(self, plan: Plan) -> None:
        super().begin(plan)
        self.logged = self.open(plan)

    def after_step(self, learner: Learner, moment: Moment) -> None:
        self.step = moment.step
        losses = {"loss": moment.loss} if moment.step % self.every == 0 else {}
        self._send(losses | self.plan.news)

    def after_task(self, learner: Learner, tests: Sequence[Task]) -> None:
        self._send(self.plan.news)

    def options(self) -> dict[str, Any]:
        return {}  # a place may hold a password, and a log is no part of the result

    @abstractmethod
    def open(self, plan: Plan) -> Logged:
        """Begin a log, or go on with the one of this run; returns what is in the log."""

    @abstractmethod
    def log(self, step: int, values: dict[str, float]) -> None:
        """Send numbers by name, measured after batch number `step`."""

    def _send(self, values: dict[str, float]) -> None:
        new = {name: value for name, value in values.items() if (name, self.step) not in self.logged}
        if new:
            self.log(self.step, new)
            self.logged |= {(name, self.step) for name in new}


def imported(module: str, *, extra: str) -> Any:
    """Import a module of an optional package; ValueError that says how to install it if it is not there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"this log needs {module}, which is not installed: {how_to_install(extra)}") from error
