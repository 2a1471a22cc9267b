"""`holdfast sweep` as a user calls it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.cli import sweeping
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.probes.record import RECORD
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import Busy, ResultStore
from holdfast.experiments.run import CHECKPOINT
from holdfast.experiments.sweep import Job, SweepReport
from tests.support.experiments import toy_experiment
from tests.support.gated import Gated, at_gate, open_gate, wait_for
from tests.support.processes import begun
from tests.support.sweeps import assert_as_if_undisturbed


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A gate, and beside it a recipe of the stream that waits there."""
    (tmp_path / "gate").mkdir()
    (tmp_path / "mine.toml").write_text(f"""
        stream = {{ name = "{Gated.__module__}:Gated", gate = "{tmp_path / "gate"}" }}
        setting = "class"
        memory = 30
        [rows.er]
        [rows.bad]
        method = "er"
        lr = 1e30
    """)
    return tmp_path / "gate"


@pytest.mark.usefixtures("forked_workers")
def test_a_sweep_goes_on_beside_failed_runs_and_names_them_at_the_end(gate, holdfast):
    open_gate(gate)
    done = holdfast("sweep", "mine.toml", "--workers", "1", "--record", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    (result,), (failed,) = document["results"], document["failed"]
    assert result["experiment"]["row"] == "er"
    assert Path(result["folder"], "result.json").exists()
    assert Path(result["folder"], RECORD).exists()
    assert failed["experiment"]["row"] == "bad"
    assert "lower the learning rate" in failed["reason"]
    headline, line = done.stderr.strip().splitlines()
    assert headline == "1 of 2 runs failed:"
    assert line.strip().startswith("mine bad seed 1234: ")
    compared = holdfast("compare", "mine.toml", "--methods", "er", "--json")  # finished, so it is only read
    assert json.loads(compared.stdout) == [result]
    Path(result["folder"], RECORD).unlink()
    assert "finished before without --record" in holdfast("sweep", "mine.toml", "--methods", "er", "--record").stdout
    again = holdfast("sweep", "mine.toml", "--methods", "er")
    assert again.returncode == 0
    assert "mine er seed 1234: finished before, skipped" in again.stdout
    assert "A_T (%)" in again.stdout
    assert again.stdout.strip().splitlines()[-1] == "written to runs/mine"


def test_a_sweep_takes_all_rows_and_seeds_of_the_recipe_unless_told_otherwise(tmp_path, holdfast, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "holdfast.cli.sweeping.run_at_once",
        lambda experiments, *_, **__: asked.extend((e.row, e.seed) for e in experiments) or SweepReport([], [], 0),
    )
    (tmp_path / "mine.toml").write_text("""
        stream = "split_digits"
        compare = ["er"]
        seeds = [3, 5, 8]
        cpu = { seeds = [3, 5] }
        rows.er = {}
        rows.drr = {}
    """)
    holdfast("sweep", "mine.toml")
    assert asked == [(row, seed) for seed in (3, 5, 8) for row in ("er", "drr")]
    asked.clear()
    holdfast("sweep", "mine.toml", "--size", "cpu", "--methods", "drr")
    assert asked == [("drr", 3), ("drr", 5)]
    asked.clear()
    holdfast("sweep", "mine.toml", "--seeds", "1-2", "--methods", "drr, er_ace")
    assert asked == [("drr", 1), ("er_ace", 1), ("drr", 2), ("er_ace", 2)]


@pytest.mark.usefixtures("forked_workers")
def test_a_signal_to_all_processes_ends_cleanly_with_the_command_that_goes_on(tmp_path, gate, holdfast):
    arguments = ["sweep", "mine.toml", "--methods", "er", "--seeds", "1-2", "--workers", "1", "--out", "my runs"]
    told, message = signalled_at_the_gate(signal.SIGINT, gate, seed=1, arguments=arguments)
    assert "mine er seed 1: begun" in told
    assert "stopped with 0 of 2 runs done; this goes on from there" in message
    continuing = shlex.split(message.strip().splitlines()[-1])
    assert continuing == ["holdfast", *arguments]
    (gate / "open").unlink()
    told, message = signalled_at_the_gate(signal.SIGTERM, gate, seed=2, arguments=continuing[1:])
    assert "mine er seed 1: continued from step 18" in told  # 12 of the first task, 6 of the second
    assert "stopped with 1 of 2 runs done" in message
    continued = holdfast(*continuing[1:])
    assert continued.returncode == 0
    assert "mine er seed 1: finished before, skipped" in continued.stdout
    assert "mine er seed 2: continued from step 18" in continued.stdout
    for seed in (1, 2):
        experiment = load_recipe("mine.toml").experiment("er", seed=seed)
        assert_as_if_undisturbed(experiment, ResultStore(tmp_path / "my runs"), tmp_path / "undisturbed")


def signalled_at_the_gate(number: signal.Signals, gate: Path, *, seed: int, arguments: list[str]) -> tuple[str, str]:
    """What the command prints if it gets a signal when its run with `seed` has come to the gate."""
    with begun(gate.parent, *arguments) as command:
        at_gate(gate, seed)
        os.killpg(command.pid, number)  # as a terminal or a batch system does
        lines = []
        while not lines or "stopping" not in lines[-1]:
            lines.append(command.stdout.readline())
            assert lines[-1], command.stderr.read()
        open_gate(gate)
        command.stdout.read()
        message = command.stderr.read()
    assert command.process.exitcode == 128 + number
    assert "Traceback" not in message
    return "".join(lines), message


def test_workers_of_a_sweep_that_was_killed_save_where_they_are_and_leave(tmp_path, gate, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment, store = load_recipe("mine.toml").experiment("er", seed=1), ResultStore(tmp_path / "runs")
    with begun(tmp_path, "sweep", "mine.toml", "--methods", "er", "--seeds", "1") as command:
        at_gate(gate, seed=1)
        command.process.kill()
        command.process.join()
        open_gate(gate)

    def is_left() -> bool:
        with contextlib.suppress(Busy), store.claimed(experiment):
            return True
        return False

    wait_for(is_left)
    assert (store.folder(experiment) / CHECKPOINT).exists()
    assert store.find(experiment) is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("sweep permuted_digit", 2, "did you mean 'permuted_digits'"),
        ("sweep permuted_digits --seeds few", 2, "'few' are no seeds"),
        ("sweep permuted_digits --methods er,finetun", 2, "did you mean 'finetune'"),
        ("sweep permuted_digits --ray local", 1, "pip install 'ray>=2.40'"),
    ],
)
def test_a_mistake_is_one_sentence_and_an_exit_code(arguments, code, message, holdfast, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    done = holdfast(*shlex.split(arguments))
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_terminal_shows_a_table_of_what_runs_and_what_is_left(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(sweeping, "err", console)
    running, finished, waiting = (Job(toy_experiment(row="er", benchmark="toy", seed=seed)) for seed in (1, 2, 3))
    running.moment = Moment(task=1, n_tasks=3, step=600, n_steps=1800, loss=0.5, accuracy=0.875)
    finished.status = "finished"
    with sweeping._Watcher(quiet=False) as watcher:
        watcher.said(finished, "finished")
        watcher.showed([running, finished, waiting], seconds_left=7230)
    shown = screen.getvalue()
    assert re.search(r"toy er seed 1 +2/3 +600/1,800 +87\.5", shown)
    assert "3 runs: 1 finished, 1 running; about 2 h 00 min left" in shown
    assert "toy er seed 2: finished" in shown


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.4, "3 s"), (89, "89 s"), (150, "2 min"), (5340, "89 min"), (7260, "2 h 01 min")]
)
def test_a_duration_is_told_as_people_say_it(seconds, words):
    assert sweeping._duration(seconds) == words
