"""`holdfast remake` as a user calls it, and what tables say of the code behind runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from holdfast.core.checkpoint import read_checkpoint, write_checkpoint
from holdfast.experiments.equivalent import EQUIVALENT, MARK
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import PACKED, ResultStore, line_of
from holdfast.experiments.run import CHECKPOINT, Interrupted, run
from tests.support.command import SMALL


@pytest.fixture
def runs(tmp_path: Path, holdfast) -> Path:
    """Two seeds of `er`, the second as if by other code."""
    done = holdfast("compare", "permuted_digits", "--methods", "er", "--seeds", "1,2", *SMALL)
    assert done.returncode == 0
    assert MARK not in done.stdout
    (path,) = (tmp_path / "runs" / "permuted_digits" / "er").glob("2-*/result.json")
    document = json.loads(path.read_text())
    document["code"]["core.model"] = "00000000"
    path.write_text(json.dumps(document))
    return tmp_path / "runs"


def folder_of(runs: Path, seed: int) -> str:
    (folder,) = (runs / "permuted_digits" / "er").glob(f"{seed}-*")
    return str(folder)


def test_a_row_of_two_codes_is_marked_until_a_remake_shows_that_they_are_equivalent(runs, holdfast):
    shown = holdfast("show", "runs").stdout
    assert f"er {MARK}" in shown
    assert f"{MARK} er: seed 2 by other code than seed 1 (core.model)" in shown
    assert f"- {MARK} er: seed 2 by other code" in holdfast("show", "runs", "--markdown").stdout

    first = holdfast("remake", folder_of(runs, 2), "--no-record")
    assert first.returncode == 0
    assert "permuted_digits er seed 2: comes out to the bit (2 tasks)" in first.stdout
    assert not list(runs.rglob(EQUIVALENT))

    second = holdfast("remake", folder_of(runs, 2))
    assert "noted in " in second.stdout
    assert (runs / EQUIVALENT).exists()
    assert MARK not in holdfast("show", "runs").stdout
    assert MARK not in holdfast("show", "runs/permuted_digits/er").stdout
    assert len(list(runs.rglob("result.json"))) == 2, "the new run was thrown away"


def test_a_run_that_does_not_come_out_names_the_number_and_what_differs(runs, holdfast):
    path = Path(folder_of(runs, 2)) / "result.json"
    document = json.loads(path.read_text())
    document["accuracies"][1][0] = 0.125
    document["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(document))
    done = holdfast("remake", str(path), folder_of(runs, 1))
    assert done.returncode == 1
    assert "er seed 2: parts at accuracy after task 2 on task 1: stored 0.125, made now 0." in done.stdout
    assert "made with other code: core.model" in done.stdout
    assert "bits depend on these too: torch 1.0, now " in done.stdout
    assert "er seed 1: comes out to the bit" in done.stdout
    assert not (runs / EQUIVALENT).exists()


def test_json_is_one_document_of_all_also_of_what_cannot_be_made(runs, holdfast):
    done = holdfast("remake", folder_of(runs, 1), "runs", "nowhere/result.json", "--tasks-only", "1", "--json")
    assert done.returncode == 1
    assert done.stderr == ""
    same, folder, nowhere = json.loads(done.stdout)
    assert (same["same"], same["tasks"], same["of"], same["parting"], same["noted"]) == (True, 1, 2, None, None)
    assert not folder["same"]
    assert "name the folder of one finished run" in folder["error"]
    assert "no such file" in nowhere["error"]


def test_out_keeps_the_run_but_not_among_the_stored_ones(runs, holdfast):
    refused = holdfast("remake", folder_of(runs, 1), "--out", "runs")
    assert refused.returncode == 1
    assert "use another --out" in refused.stderr
    kept = holdfast("remake", folder_of(runs, 1), "--out", "again")
    assert kept.returncode == 0
    assert len(list((runs.parent / "again").rglob("result.json"))) == 1


def test_a_result_that_names_code_of_another_package_is_refused(runs, holdfast):
    path = Path(folder_of(runs, 1)) / "result.json"
    document = json.loads(path.read_text())
    document["experiment"]["method"]["name"] = "evil:Evil"
    other = path.parents[2] / "evil" / "result.json"
    other.parent.mkdir()
    other.write_text(json.dumps(document))
    (runs.parent / "evil.py").write_text("open('ran', 'w')")
    done = holdfast("remake", str(other))
    assert done.returncode == 1
    assert "evil:Evil" in done.stderr
    assert "--trust-code" in done.stderr
    assert not (runs.parent / "ran").exists()


def test_a_run_of_other_code_goes_on_only_if_told_and_the_tables_say_so(tmp_path, holdfast):
    changes = {"stream.n_tasks": 2, "stream.samples_per_task": 100}
    experiment, store = load_recipe("permuted_digits").experiment("er", changes=changes), ResultStore(tmp_path / "runs")
    asked = iter(range(9))
    with pytest.raises(Interrupted):
        run(experiment, store, stop=lambda: next(asked) == 4)
    path = store.folder(experiment) / CHECKPOINT
    state = read_checkpoint(path)
    state["code"]["methods.er"] = "00000000"
    write_checkpoint(path, state)
    for command in ("run", "compare"):
        option = "--method" if command == "run" else "--methods"
        refused = holdfast(command, "permuted_digits", option, "er", *SMALL)
        assert refused.returncode == 1
        assert "made by other code (methods.er differs): --fresh" in refused.stderr
    done = holdfast("compare", "permuted_digits", "--methods", "er", "--continue-anyway", *SMALL)
    assert done.returncode == 0
    assert f"{MARK} er: seed 1234 went on with other code at step 5 (methods.er)" in done.stdout


def test_a_run_in_a_file_of_many_is_shown_and_made_again(runs, holdfast):
    stored = [result for result in ResultStore(runs).results() if result.experiment.seed == 1]
    packed = runs.parent / "packed" / "permuted_digits" / PACKED
    packed.parent.mkdir(parents=True)
    packed.write_text("".join(f"{line_of(result)}\n" for result in stored))
    place = f"packed/permuted_digits/{PACKED}#{stored[0].experiment.digest}"
    assert "permuted_digits er seed 1" in holdfast("show", place).stdout
    assert "er" in holdfast("show", f"packed/permuted_digits/{PACKED}", "--markdown").stdout
    assert holdfast("show", "packed").returncode == 0
    done = holdfast("remake", place)
    assert done.returncode == 0, done.stderr
    assert "comes out to the bit (2 tasks)" in done.stdout
    nowhere = holdfast("remake", place[:-10] + "0123456789")
    assert "no result 0123456789 in" in nowhere.stderr
    skipped = holdfast("compare", "permuted_digits", "--methods", "er", "--seeds", "1", "--out", "packed", *SMALL)
    assert "finished before" in skipped.stdout
    assert list((runs.parent / "packed").rglob("*.json")) == []


def test_an_edited_file_of_ones_own_is_run_again(tmp_path, holdfast):
    mine = tmp_path / "my_edited.py"
    text = (
        "from dataclasses import dataclass\n"
        "from holdfast.methods.finetune import Finetune\n"
        "@dataclass(kw_only=True, eq=False)\n"
        "class Mine(Finetune):\n"
        "    'My own.'\n"
        "    def observe(self, batch):\n"
        "        return super().observe(batch[:1])\n"
    )
    mine.write_text(text)
    command = ["compare", "permuted_digits", "--methods", "my_edited:Mine", "--seeds", "1", *SMALL]
    first = holdfast(*command)
    assert first.returncode == 0, first.stderr
    assert "finished before" in holdfast(*command).stdout
    mine.write_text(text.replace("batch[:1]", "batch"))
    del sys.modules["my_edited"]  # as in a process of its own
    edited = holdfast(*command)
    assert "finished before" not in edited.stdout
    assert len(list((tmp_path / "runs").rglob("result.json"))) == 2
    assert holdfast("show", "runs").stdout.count("Mine (code of my_edited.py=") == 2
