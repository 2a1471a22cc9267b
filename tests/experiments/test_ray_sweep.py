"""A sweep on a real Ray, which is started here."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from holdfast.experiments.ray_sweep import connected, ray_sweep
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import Interrupted
from holdfast.experiments.sweep import Job
from tests.support.experiments import toy_experiment
from tests.support.gated import at_gate, open_gate
from tests.support.sweeps import Beside, Listening, assert_as_if_undisturbed, gated

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of Ray goes to the user's folders or out of the house.

    One worker at a time has clusters: two that start at once may choose the same port.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (
        FileLock(shared / "ray.lock"),
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="ray") as folder,
    ):
        patch.setenv("RAY_TMPDIR", folder)  # not in pytest's: a socket's path may have 107 characters
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", uuid.uuid4().hex)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        with contextlib.chdir(tmp_path_factory.mktemp("current")):
            ray = stack.enter_context(connected("local", 2))
        yield ray


def test_without_a_cluster_there_is_a_sentence(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ConnectionError, match=r"no Ray at 'auto': .* '--ray local' one for this sweep"):
        ray_sweep([toy_experiment()], ResultStore(tmp_path), address="auto")
    assert signal.getsignal(signal.SIGTERM) is before


def path_of_worker() -> list[str]:
    return sys.path


def test_the_folder_that_was_current_is_not_on_the_path_of_workers(ray: Any) -> None:
    path = ray.get(ray.remote(path_of_worker).remote())
    assert str(ROOT) in path, "which PYTHONPATH says"
    assert not [place for place in path if Path(place).name.startswith("current")]


def test_runs_whose_workers_are_killed_or_that_are_claimed_or_fail_are_brought_to_an_end(
    ray: Any, tmp_path: Path
) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "Ray left its own handler"
    assert ray.cluster_resources()["CPU"] == 2
    store, gate = ResultStore(tmp_path / "runs"), tmp_path / "gate"
    killed, failing, claimed = gated(gate, seed=1), toy_experiment(lr=1e30, seed=2), toy_experiment(seed=3)
    claim = contextlib.ExitStack()
    claim.enter_context(store.claimed(claimed))

    class Releasing(Listening):
        def said(self, job: Job, text: str) -> None:
            super().said(job, text)
            if "run by another process" in text:
                claim.close()

    def kill() -> None:
        os.kill(at_gate(gate, seed=1), signal.SIGKILL)
        open_gate(gate)

    watcher = Releasing()
    with claim, Beside(kill):
        report = ray_sweep([killed, failing, claimed], store, checkpoint_seconds=0, watcher=watcher)
    assert [result.experiment.seed for result in report.results] == [1, 3]
    assert [failure.experiment for failure in report.failures] == [failing]
    assert "lower the learning rate" in report.failures[0].reason
    assert "er 1: continued from step 17" in watcher.lines, watcher.lines
    assert sum("er 3: is being run by another process" in line for line in watcher.lines) == 1
    assert {result.versions["threads"] for result in report.results} == {"1"}
    for experiment in (killed, claimed):
        assert_as_if_undisturbed(experiment, store, tmp_path / "undisturbed")


@pytest.mark.usefixtures("ray")
def test_a_sweep_asked_to_stop_saves_what_runs_and_forgets_what_waits(tmp_path: Path) -> None:
    store, gate = ResultStore(tmp_path / "runs"), tmp_path / "gate"
    experiments = [gated(gate, seed=seed) for seed in (1, 2, 3)]  # the third finds no processor

    def both_are_there() -> bool:
        return (gate / "1").exists() and (gate / "2").exists()

    class Opening(Listening):
        def stopping(self) -> None:
            open_gate(gate)

    watcher = Opening()
    with pytest.raises(Interrupted, match="stopped with 0 of 3 runs done"):
        ray_sweep(experiments, store, watcher=watcher, stop=both_are_there)
    assert not store.folder(experiments[2]).exists()
    report = ray_sweep(experiments, store, watcher=watcher, workers=2)
    assert len(report.results) == 3
    assert [f"er {seed}: continued from step 18" in watcher.lines for seed in (1, 2, 3)] == [True, True, False]
    for experiment in experiments:
        assert_as_if_undisturbed(experiment, store, tmp_path / "undisturbed")
