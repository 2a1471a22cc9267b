"""Messages between a sweep and its workers."""

from __future__ import annotations

import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import torch

from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.results import Busy, Refused, ResultStore
from holdfast.experiments.run import How, Interrupted, Watcher, run
from holdfast.methods._base import Diverged
from holdfast.parts import foreign_frames


@dataclass(frozen=True)
class Order:
    """A run to do, and how."""

    experiment: Experiment
    root: Path
    how: How = field(default_factory=How)


@dataclass(frozen=True)
class Begun:
    """The run has begun, or goes on, from here."""

    moment: Moment


@dataclass(frozen=True)
class Warned:
    """A warning that came while it ran."""

    text: str


@dataclass(frozen=True)
class Outcome:
    """Outcome of an order; `reason` says why it failed. The store has the result itself."""

    kind: Literal["finished", "failed", "elsewhere", "stopped"]
    reason: str = ""


@dataclass(frozen=True)
class Died:
    """The worker is gone before the order ended."""

    how: str


Report = Begun | Moment | Warned | Outcome | Died


class Reporter(Watcher, Protocol):
    """Channel from a worker to its sweep."""

    def tell(self, report: Report) -> None: ...

    def stop(self) -> bool:
        """Return True if the sweep wants the run to stop."""


def carry_out(order: Order, reporter: Reporter) -> Outcome:
    """Do an order with one thread; whatever goes wrong is an outcome."""
    if reporter.stop():
        return Outcome("stopped")
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: reporter.tell(Warned(str(message)))
        try:
            run(order.experiment, ResultStore(order.root), watcher=reporter, stop=reporter.stop, **order.how)
        except Busy:
            return Outcome("elsewhere")
        except Interrupted:
            return Outcome("stopped")
        except Exception as error:
            return Outcome("failed", _reason(error))
    return Outcome("finished")


def _reason(error: Exception) -> str:
    """Return the sentence of an error that was foreseen; with kind and place if it was not, or came of other code."""
    if not isinstance(error, Refused | Diverged) and (frames := foreign_frames(error)):
        last = frames[-1]
        return f"{type(error).__name__}: {error} ({Path(last.file).name}, line {last.line}, in {last.function})"
    if isinstance(error, OSError | ValueError | Refused | Diverged) and str(error):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
