from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from holdfast.core.checkpoint import CHECKPOINT, CorruptCheckpoint, read_plain, write_checkpoint
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import Interrupted, run
from holdfast.experiments.under_way import under_way
from tests.support.made_up_results import store


def test_a_stopped_run_is_told_with_how_far_it_is(tmp_path: Path):
    small = {"stream.n_tasks": 2, "stream.samples_per_task": 40}
    experiment = load_recipe("split_digits").experiment("er", seed=1, changes=small)
    asked = iter([False, False, True])
    with pytest.raises(Interrupted):
        run(experiment, ResultStore(tmp_path), stop=lambda: next(asked))
    store(tmp_path, "permuted_digits", "er", {1: 0.5})
    (found,) = under_way(tmp_path)
    assert (found.benchmark, found.row, found.seed, found.step, found.n_steps) == ("split_digits", "er", 1, 3, 8)
    assert not found.running
    assert found.line.startswith("split_digits er seed 1: stopped, step 3 of 8, saved ")
    with (found.folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert under_way(tmp_path)[0].running


def test_odd_files_are_named_and_passed_over(tmp_path: Path):
    for name, content in (("list", "[]"), ("number", '{"benchmark": 1, "row": "er"}'), ("half", '{"bench')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.json").write_text(content)
    with pytest.warns(UserWarning, match="experiment") as caught:
        assert under_way(tmp_path) == []
    assert len(caught) == 3


def test_the_plain_part_of_a_checkpoint_is_read_without_its_tensors(tmp_path: Path):
    path = tmp_path / CHECKPOINT
    write_checkpoint(path, {"step": 3, "name": "er", "nested": {"step": 9}, "list": [1]})
    assert read_plain(path) == {"step": 3, "name": "er"}
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(CorruptCheckpoint):
        read_plain(path)
