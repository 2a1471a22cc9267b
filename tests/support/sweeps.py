"""Runs of a sweep that wait at a gate, one who listens to a sweep, and what a sweep has to leave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.experiments.experiment import Experiment
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.experiments.sweep import Job
from tests.support.experiments import left_behind, toy_experiment
from tests.support.gated import Gated
from tests.support.same import assert_same


class Listening:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.seconds_left: list[float | None] = []
        self.was_stopping = False

    def said(self, job: Job, text: str) -> None:
        self.lines.append(f"{job.experiment.row} {job.experiment.seed}: {text}")

    def showed(self, jobs: Sequence[Job], seconds_left: float | None) -> None:
        self.seconds_left.append(seconds_left)

    def stopping(self) -> None:
        self.was_stopping = True


class Beside(threading.Thread):
    """Runs something while the block runs, and fails with it."""

    def __init__(self, target: Callable[[], None]) -> None:
        super().__init__()
        self.body = target
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.body()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.join()
        if self.error is not None:
            raise self.error


def gated(folder: Path, seed: int) -> Experiment:
    folder.mkdir(exist_ok=True)
    return toy_experiment(stream={"name": f"{Gated.__module__}:Gated", "gate": str(folder)}, seed=seed)


def assert_as_if_undisturbed(experiment: Experiment, store: ResultStore, other: Path) -> None:
    """Assert that a sweep left of a run, to the bit, what a run in this process leaves."""
    expected = run(experiment, ResultStore(other))
    result = store.find(experiment)
    assert result is not None
    assert result.accuracies == expected.accuracies
    assert_same(left_behind(store, experiment), left_behind(ResultStore(other), experiment))
