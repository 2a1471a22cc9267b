"""Whatever happens to a run is an outcome that a worker can tell."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from holdfast.experiments.experiment import Experiment
from holdfast.experiments.orders import Begun, Order, Outcome, Report, Warned, carry_out
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import CHECKPOINT
from holdfast.streams._base import Stream
from tests.support.experiments import toy_experiment


class Listening:
    def __init__(self, stop_after: int | None = None) -> None:
        self.told: list[Report] = []
        self.stop_after = stop_after

    def tell(self, report: Report) -> None:
        self.told.append(report)

    def begin(self, facts: dict[str, str], moment: Moment) -> None:
        self.tell(Begun(moment))

    def step(self, moment: Moment) -> None:
        self.tell(moment)

    def stop(self) -> bool:
        return self.stop_after is not None and len(self.told) > self.stop_after


class Broken(Stream):
    """A stream with a mistake in it."""

    def __init__(self, data: Path | None = None, *, seed: int = 0, tasks: str = "report") -> None:
        self.tasks = [][seed]


def outcome(experiment: Experiment, folder: Path, reporter: Listening | None = None) -> Outcome:
    return carry_out(Order(experiment, folder), reporter or Listening())


def test_a_run_that_finishes_leaves_its_result_in_the_store(tmp_path: Path) -> None:
    assert outcome(toy_experiment(), tmp_path) == Outcome("finished")
    assert ResultStore(tmp_path).find(toy_experiment())


def test_a_run_asked_to_stop_is_saved_and_goes_on(tmp_path: Path) -> None:
    assert outcome(toy_experiment(), tmp_path, Listening(stop_after=7)) == Outcome("stopped")
    again = Listening()
    assert outcome(toy_experiment(), tmp_path, again) == Outcome("finished")
    assert isinstance(again.told[0], Begun)
    assert again.told[0].moment.step == 7


def test_a_worker_asked_to_stop_does_not_begin(tmp_path: Path) -> None:
    assert outcome(toy_experiment(), tmp_path, Listening(stop_after=-1)) == Outcome("stopped")
    assert not list(tmp_path.iterdir())


def test_a_run_that_another_has_claimed_is_elsewhere(tmp_path: Path) -> None:
    with ResultStore(tmp_path).claimed(toy_experiment()):
        assert outcome(toy_experiment(), tmp_path) == Outcome("elsewhere")


def test_a_foreseen_error_is_its_sentence_and_another_has_its_kind_and_place(tmp_path: Path) -> None:
    diverged = outcome(toy_experiment(lr=1e30), tmp_path)
    assert diverged.kind == "failed"
    assert "lower the learning rate" in diverged.reason
    broken = outcome(toy_experiment(stream=f"{__name__}:Broken"), tmp_path)
    assert broken.kind == "failed"
    assert broken.reason.startswith("IndexError: list index out of range (test_orders.py, line ")


def test_a_warning_is_told(tmp_path: Path) -> None:
    experiment, store = toy_experiment(), ResultStore(tmp_path)
    with store.claimed(experiment) as folder:
        (folder / CHECKPOINT).write_bytes(b"no checkpoint")
    listening = Listening()
    with warnings.catch_warnings(action="always"):
        assert outcome(experiment, tmp_path, listening) == Outcome("finished")
    (warned,) = (report for report in listening.told if isinstance(report, Warned))
    assert "begins anew" in warned.text


@pytest.mark.parametrize("place", ["before it looks", "between its look and its claim"])
def test_a_run_that_another_has_just_finished_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    experiment = toy_experiment()
    assert outcome(experiment, tmp_path) == Outcome("finished")
    if place != "before it looks":
        looks = iter([True])
        find = ResultStore.find
        monkeypatch.setattr(ResultStore, "find", lambda *a: None if next(looks, False) else find(*a))
    listening = Listening()
    assert outcome(experiment, tmp_path, listening) == Outcome("finished")
    assert listening.told == []
