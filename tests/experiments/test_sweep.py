"""A sweep brings every run to its end once, whatever happens to workers and to other sweeps."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from holdfast.experiments import sweep as module
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.orders import Begun, Died, Order, Outcome, Report, Warned
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import Interrupted, run
from holdfast.experiments.sweep import MAX_DEATHS, SweepReport, oversee, sweep
from tests.support.experiments import toy_experiment
from tests.support.gated import at_gate, open_gate
from tests.support.sweeps import Beside, Listening, assert_as_if_undisturbed, gated


class Pretended:
    """A pool in this process: what comes of an order is said by the test."""

    n_workers = 1

    def __init__(self, answer: Callable[[Order], Iterable[Report]]) -> None:
        self.answer = answer
        self.ordered: list[str] = []
        self.told: list[tuple[str, Report]] = []
        self.stopped = self.closed = False

    def has_room(self) -> bool:
        return not self.told

    def start(self, order: Order) -> None:
        self.ordered.append(f"{order.experiment.row} {order.experiment.seed}")
        self.told += [(order.experiment.path, report) for report in self.answer(order)]

    def reports(self, seconds: float) -> list[tuple[str, Report]]:
        told, self.told = self.told, []
        return told

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        self.closed = True


def done(order: Order) -> list[Report]:
    """The honest answer: the run is done, here and now."""
    begun = Moment(task=0, n_tasks=3, step=0, n_steps=36, loss=0.0, accuracy=None)
    run(order.experiment, ResultStore(order.root))
    return [Begun(begun), Outcome("finished")]


def pretended_sweep(
    experiments: list[Experiment],
    folder: Path,
    pool: Pretended,
    watcher: Listening | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> SweepReport:
    return oversee(experiments, ResultStore(folder), {}, lambda: pool, watcher=watcher or Listening(), stop=stop)


def test_heavier_runs_come_first_and_equal_ones_in_the_order_asked_for(tmp_path: Path) -> None:
    methods = ["finetune", {"name": "er", "replay_size": 20}, {"name": "agem", "replay_size": 5}]
    pool = Pretended(lambda _: [Outcome("failed")])  # so that nothing is known of seconds
    pretended_sweep([toy_experiment(method=m, seed=seed) for seed in (1, 2) for m in methods], tmp_path, pool)
    assert pool.ordered == ["er 1", "er 2", "agem 1", "agem 2", "finetune 1", "finetune 2"]
    assert pool.closed


def test_recorded_seconds_count_more_than_the_settings(tmp_path: Path) -> None:
    for method, seconds in (("finetune", 1000.0), ("er", 1.0)):
        result = run(toy_experiment(method=method, seed=1), ResultStore(tmp_path))
        ResultStore(tmp_path).save(result.model_copy(update={"seconds": seconds}))
    pool = Pretended(done)
    report = pretended_sweep([toy_experiment(method=m, seed=2) for m in ("er", "finetune")], tmp_path, pool)
    assert pool.ordered == ["finetune 2", "er 2"]
    assert [result.experiment.row for result in report.results] == ["er", "finetune"], "not in the order asked for"


def test_what_is_left_is_told_as_soon_as_one_run_is_known(tmp_path: Path) -> None:
    watcher = Listening()
    pretended_sweep([toy_experiment(seed=seed) for seed in (1, 2)], tmp_path, Pretended(done), watcher)
    first = ResultStore(tmp_path).find(toy_experiment(seed=1))
    assert first is not None
    assert watcher.seconds_left[0] == pytest.approx(first.seconds + first.seconds_testing)
    assert watcher.seconds_left[-1] == 0


def test_finished_runs_are_skipped_without_workers_and_no_run_is_asked_for_twice(tmp_path: Path) -> None:
    experiments = [toy_experiment(seed=1), toy_experiment(seed=2), toy_experiment(seed=1)]
    pool = Pretended(done)
    assert pretended_sweep(experiments, tmp_path, pool).n_found == 0
    assert pool.ordered == ["er 1", "er 2"]
    never = Pretended(lambda _: pytest.fail("ordered"))
    report = pretended_sweep(experiments, tmp_path, never)
    assert [result.experiment.seed for result in report.results] == [1, 2]
    assert report.n_found == 2


def test_a_run_whose_workers_die_and_die_has_failed_and_the_others_go_on(tmp_path: Path) -> None:
    pool = Pretended(lambda order: [Died("killed by SIGKILL")] if order.experiment.seed == 1 else done(order))
    report = pretended_sweep([toy_experiment(seed=seed) for seed in (1, 2)], tmp_path, pool)
    assert pool.ordered.count("er 1") == MAX_DEATHS + 1
    (failure,) = report.failures
    assert failure.experiment.seed == 1
    assert failure.reason == f"its worker died {MAX_DEATHS + 1} times, the last time killed by SIGKILL"
    assert [result.experiment.seed for result in report.results] == [2]


def test_a_run_claimed_by_another_process_is_left_for_last_and_then_its_result_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS_UNTIL_NEXT_TRY", 0.0)
    tries = 0

    def answer(order: Order) -> list[Report]:
        nonlocal tries
        if order.experiment.seed != 1:
            return done(order)
        tries += 1
        if tries < 4:
            return [Outcome("elsewhere")]
        run(order.experiment, ResultStore(order.root))  # the other process has come to its end
        return [Outcome("finished")]

    watcher, pool = Listening(), Pretended(answer)
    report = pretended_sweep([toy_experiment(seed=seed) for seed in (1, 2, 3)], tmp_path, pool, watcher)
    assert pool.ordered == ["er 1", "er 2", "er 3", "er 1", "er 1", "er 1"]
    assert len(report.results) == 3
    assert report.n_found == 1
    assert sum("run by another process" in line for line in watcher.lines) == 1


def test_a_damaged_result_and_a_folder_that_is_not_shared_are_failures(tmp_path: Path) -> None:
    damaged, unshared = toy_experiment(seed=1), toy_experiment(seed=2)
    path = ResultStore(tmp_path).folder(damaged) / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    report = pretended_sweep([damaged, unshared], tmp_path, Pretended(lambda _: [Outcome("finished")]))
    assert [failure.experiment.seed for failure in report.failures] == [1, 2]
    assert str(path) in report.failures[0].reason
    assert "workers must share that folder" in report.failures[1].reason


def test_warnings_of_a_run_are_passed_on(tmp_path: Path) -> None:
    watcher = Listening()
    pool = Pretended(lambda order: [Warned("the disk is full"), *done(order)])
    pretended_sweep([toy_experiment(seed=1)], tmp_path, pool, watcher)
    assert watcher.lines[:2] == ["er 1: warning: the disk is full", "er 1: begun"]


def test_a_sweep_asked_to_stop_gives_no_more_orders(tmp_path: Path) -> None:
    watcher, pool = Listening(), Pretended(done)
    with pytest.raises(Interrupted, match="stopped with 1 of 3 runs done"):
        pretended_sweep(
            [toy_experiment(seed=seed) for seed in (1, 2, 3)], tmp_path, pool, watcher, stop=lambda: bool(pool.ordered)
        )
    assert pool.stopped
    assert pool.closed
    assert watcher.was_stopping


@pytest.mark.usefixtures("forked_workers")
def test_a_worker_killed_half_way_is_replaced_and_a_failed_run_does_not_end_the_others(tmp_path: Path) -> None:
    store, gate, watcher = ResultStore(tmp_path / "runs"), tmp_path / "gate", Listening()
    killed, failing, other = gated(gate, seed=1), toy_experiment(lr=1e30, seed=2), toy_experiment(seed=3)

    def kill() -> None:
        os.kill(at_gate(gate, seed=1), signal.SIGKILL)
        open_gate(gate)

    with Beside(kill):
        report = sweep([killed, failing, other], store, workers=1, checkpoint_seconds=0, watcher=watcher)
    assert [result.experiment.seed for result in report.results] == [1, 3]
    assert [failure.experiment for failure in report.failures] == [failing]
    assert "lower the learning rate" in report.failures[0].reason
    assert any("its worker died (killed by SIGKILL)" in line for line in watcher.lines)
    assert "er 1: continued from step 17" in watcher.lines, watcher.lines  # 12 of the first task, 5 of the second
    assert {result.versions["threads"] for result in report.results} == {"1"}
    for experiment in (killed, other):
        assert_as_if_undisturbed(experiment, store, tmp_path / "undisturbed")


@pytest.mark.usefixtures("forked_workers")
def test_two_sweeps_on_one_folder_do_each_run_once(tmp_path: Path) -> None:
    store, gate = ResultStore(tmp_path / "runs"), tmp_path / "gate"
    experiments = [gated(gate, seed=seed) for seed in (1, 2, 3)]
    reports: list[SweepReport] = []

    def other_sweep() -> None:
        reports.append(sweep(experiments, store, workers=1))

    def open_when_both_are_there() -> None:
        assert at_gate(gate, seed=1) != at_gate(gate, seed=2)
        open_gate(gate)

    with Beside(other_sweep), Beside(open_when_both_are_there):
        reports.append(sweep(experiments, store, workers=1))
    assert [[result.experiment.seed for result in report.results] for report in reports] == [[1, 2, 3], [1, 2, 3]]
    assert sum(3 - report.n_found for report in reports) == 3, "a run was done twice, or by nobody"
    for experiment in experiments:
        assert_as_if_undisturbed(experiment, store, tmp_path / "undisturbed")
