"""How a worker answers to those who want it to stop."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from holdfast.experiments import processes
from holdfast.experiments.orders import Begun, Order, Outcome
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.results import ResultStore
from tests.support.experiments import toy_experiment


@pytest.fixture
def lines() -> Iterator[tuple[Connection, Connection]]:
    """The sweep's end of a line and the worker's; the worker is this process, so signals are put right afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    ours, theirs = multiprocessing.Pipe()
    yield ours, theirs
    signal.signal(signal.SIGTERM, before)
    ours.close()
    theirs.close()


def test_a_worker_carries_out_orders_until_the_line_ends(lines, tmp_path: Path, monkeypatch) -> None:
    ours, theirs = lines
    orders = [Order(toy_experiment(seed=seed), tmp_path) for seed in (1, 2)]
    tell = processes._Reporter.tell
    outcomes = []

    def next_order() -> None:
        if orders:
            ours.send(orders.pop(0))
        else:
            ours.close()

    def answered(reporter: processes._Reporter, report: object) -> None:
        tell(reporter, report)
        if isinstance(report, Outcome):
            outcomes.append(report)
            next_order()

    monkeypatch.setattr(processes._Reporter, "tell", answered)
    next_order()
    processes._work(theirs)
    assert outcomes == [Outcome("finished")] * 2
    assert len(ResultStore(tmp_path).results()) == 2


def test_a_worker_whose_sweep_is_gone_saves_where_it_is(lines, tmp_path: Path, monkeypatch) -> None:
    ours, theirs = lines
    experiment = toy_experiment()
    ours.send(Order(experiment, tmp_path))
    begin = processes._Reporter.begin

    def hang_up(reporter: processes._Reporter, facts: dict[str, str], moment: Moment) -> None:
        ours.close()
        begin(reporter, facts, moment)

    monkeypatch.setattr(processes._Reporter, "begin", hang_up)
    processes._work(theirs)
    assert (ResultStore(tmp_path).folder(experiment) / "checkpoint.safetensors").exists()
    assert ResultStore(tmp_path).find(experiment) is None


def test_a_worker_told_to_stop_by_its_sweep_says_so_and_leaves(lines, tmp_path: Path) -> None:
    ours, theirs = lines
    ours.send(Order(toy_experiment(), tmp_path))
    ours.send(None)
    processes._work(theirs)
    assert ours.recv() == Outcome("stopped")
    assert not ours.poll()


def test_a_worker_that_others_terminate_saves_and_leaves_its_run_to_the_next(
    lines, tmp_path: Path, monkeypatch
) -> None:
    ours, theirs = lines
    experiment = toy_experiment()
    ours.send(Order(experiment, tmp_path))
    step = processes._Reporter.step

    def terminated(reporter: processes._Reporter, moment: Moment) -> None:
        if moment.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        step(reporter, moment)

    monkeypatch.setattr(processes._Reporter, "step", terminated)
    with pytest.raises(SystemExit) as ended:
        processes._work(theirs)
    monkeypatch.undo()
    assert ended.value.code == 128 + signal.SIGTERM
    told = []
    while ours.poll():
        told.append(ours.recv())
    assert not any(isinstance(report, Outcome) for report in told), "it spoke for the sweep"
    # The next worker.
    assert processes.carry_out(Order(experiment, tmp_path), processes._Reporter(theirs)) == Outcome("finished")
    begun = ours.recv()
    assert isinstance(begun, Begun)
    assert begun.moment.step == 5
