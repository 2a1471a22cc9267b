"""`--dry-run` and `--quiet`, and what is told of runs that are not finished."""

from __future__ import annotations

import fcntl
import json

import pytest

from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import Interrupted, run
from tests.support.command import SMALL
from tests.support.made_up_results import store

CHANGES = {"stream.n_tasks": 2, "stream.samples_per_task": 100}


def stopped(root, row="er", seed=1234):
    """Leave a run that was stopped after its 15th of 20 steps; its folder."""
    experiment = load_recipe("permuted_digits").experiment(row, seed=seed, changes=CHANGES)
    asked = iter(range(100))
    with pytest.raises(Interrupted):
        run(experiment, ResultStore(root), stop=lambda: next(asked) == 15)
    return ResultStore(root).folder(experiment)


def test_a_dry_run_says_what_there_would_be_and_how_long_and_runs_nothing(tmp_path, holdfast):
    store(tmp_path / "runs", "permuted_digits", "er", {1: 0.5}, stream__n_tasks=2, stream__samples_per_task=100)
    stopped(tmp_path / "runs", seed=2)
    before = sorted((tmp_path / "runs").rglob("*"))
    for command in ("compare", "sweep"):
        done = holdfast(command, "permuted_digits", "--methods", "er", "--seeds", "1-3", "--dry-run", *SMALL)
        assert (done.returncode, done.stderr) == (0, "")
        lines = [line.split() for line in done.stdout.splitlines() if "seed" in line]
        assert [" ".join(line[4:]) for line in lines] == [
            "finished before",
            "begun, step 15 of 20 under 1 s",
            "new under 1 s",
        ]
        assert "3 runs: 1 finished, 1 begun, 1 new; under 1 s" in done.stdout
    assert sorted((tmp_path / "runs").rglob("*")) == before


def test_how_long_is_not_known_before_anything_ran(tmp_path, holdfast):
    done = holdfast("run", "permuted_digits", "--dry-run", *SMALL)
    assert "not known" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_as_json_names_folders_states_and_seconds(tmp_path, holdfast):
    store(tmp_path / "runs", "permuted_digits", "er", {1: 0.5}, stream__n_tasks=2, stream__samples_per_task=100)
    command = ["compare", "permuted_digits", "--methods", "er,finetune", "--seeds", "1", "--dry-run", "--json", *SMALL]
    er, finetune = json.loads(holdfast(*command).stdout)
    assert (er["state"], er["expected_seconds"]) == ("finished", None)
    assert (finetune["state"], finetune["experiment"]["row"]) == ("new", "finetune")
    assert 0 < finetune["expected_seconds"] < 1  # finetune learns less than er, which took 0.6 seconds
    with_fresh = json.loads(holdfast("run", "permuted_digits", "--seed", "1", "--fresh", *command[-6:]).stdout)
    assert [each["state"] for each in with_fresh] == ["new"]


def test_a_dry_run_of_a_papers_table_names_what_is_missing(tmp_path, holdfast):
    done = holdfast("paper", "table-6", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "ablation_threshold ring seed 1234" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_quiet_prints_the_result_only(holdfast):
    done = holdfast("run", "permuted_digits", "--quiet", *SMALL)
    first, second = done.stdout.splitlines()
    assert first.startswith("er: A_T (%)")
    assert second.startswith("written to")
    assert done.stderr == ""
    compared = holdfast("compare", "permuted_digits", "-q", "--methods", "er", *SMALL)
    assert "finished before" not in compared.stdout
    assert "A_T" in compared.stdout
    assert "begun" not in holdfast("sweep", "permuted_digits", "-q", "--methods", "er", *SMALL).stdout


def test_show_tells_of_runs_that_are_not_finished(tmp_path, holdfast):
    folder = stopped(tmp_path / "runs")
    with (folder / ".lock").open("w") as lock:  # as the process that runs it
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = holdfast("show", "runs")
    assert done.returncode == 0
    assert "1 not finished:\n  permuted_digits er seed 1234: running, step 15 of 20, saved" in done.stdout
    store(tmp_path / "runs", "permuted_digits", "er", {1: 0.5, 2: 0.6})
    assert "1 not finished:\n  permuted_digits er seed 1234: stopped, step 15 of 20" in holdfast("show").stdout
    assert "not finished" in holdfast("show", str(folder)).stdout


@pytest.mark.filterwarnings("always::UserWarning")  # the command prints its warnings
@pytest.mark.parametrize("accuracies", [[], [[]], [[0.5], [0.5, 0.5]], [[1e308]], [[-0.5]]])
def test_a_result_without_a_matrix_is_named_and_passed_over(accuracies, tmp_path, holdfast):
    store(tmp_path / "runs", "permuted_digits", "er", {1: 0.5, 2: 0.6})
    path = next((tmp_path / "runs").rglob("result.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"accuracies": accuracies}))
    done = holdfast("show")
    assert done.returncode == 0
    assert f"warning: {path.relative_to(tmp_path)}" in done.stderr
    assert "is no result of a run" in done.stderr
    assert "er: A_T (%)" in done.stdout
