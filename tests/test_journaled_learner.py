"""A learner with a journal: after a crash it has the bits of a learner that never crashed."""

from __future__ import annotations

import copy
import linecache
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.core.calls import CallJournal
from holdfast.core.journal import CorruptJournal
from holdfast.learner import Learner
from holdfast.loading import load_learner
from tests.support.bits import bits, observed
from tests.support.interrupted import AtLine

SMALL: dict[str, Any] = {"method": "er", "memory": 10, "n_classes": 3, "seed": 1}
N_KILLS = 25


def batch(seed: int) -> tuple[torch.Tensor, list[int]]:
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (4,), generator=rng)
    return torch.randn(4, 5, generator=rng) + 3 * torch.eye(3, 5)[y], y.tolist()


def after(*seeds: int) -> str:
    return bits(observed(Learner(**SMALL), map(batch, seeds)))


def test_a_learner_that_was_never_saved_comes_back_from_its_journal(tmp_path: Path):
    learner = Learner(**SMALL, journal=tmp_path)
    for seed in range(4):
        learner.observe(*batch(seed))
    learner.close_journal()
    again = Learner(**SMALL, journal=tmp_path)
    again.observe(*batch(4))
    again.close_journal()
    assert bits(again) == after(*range(5))


def test_a_saved_learner_learns_again_what_came_after(tmp_path: Path):
    path, journal = tmp_path / "learner", tmp_path / "journal"
    learner = Learner(**SMALL, journal=journal)
    for seed in range(6):
        learner.observe(*batch(seed))
        if seed in (1, 3):
            learner.save(path)
    learner.close_journal()
    again = load_learner(path, journal=journal)
    again.close_journal()
    assert bits(again) == after(*range(6))
    assert bits(load_learner(path)) == after(*range(4))
    path.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="going on from the one before"):
        before = load_learner(path, journal=journal)
    before.close_journal()
    assert bits(before) == after(*range(6))


def test_saving_empties_the_journal(tmp_path: Path):
    journal = CallJournal(tmp_path / "journal", segment_bytes=1)
    learner = Learner(**SMALL, journal=journal)
    for seed in range(5):
        learner.observe(*batch(seed))
    full = journal.nbytes
    for _ in range(2):  # the first one stands in for a damaged second one
        learner.save(tmp_path / "learner")
    assert journal.nbytes < full / 5
    learner.close_journal()


def test_refused_batches_are_not_learned_again(tmp_path: Path):
    learner = Learner(**SMALL, journal=tmp_path)
    learner.observe(*batch(1))
    for x, y in ((batch(2)[0], [0, 0, 0, 99]), (torch.full((1, 5), torch.nan), [0]), (torch.ones(1, 9), [0])):
        with pytest.raises(ValueError, match=r"label|NaN|takes"):
            learner.observe(x, y)
    learner.observe(*batch(3))
    learner.close_journal()
    again = Learner(**SMALL, journal=tmp_path)
    again.close_journal()
    assert bits(again) == bits(learner) == after(1, 3)


def test_every_kind_of_call_and_argument_is_made_again(tmp_path: Path):
    settings = {"method": "ewc", "setting": "class", "n_classes": 6}
    learner = Learner(**settings, journal=tmp_path)
    x, y = batch(1)
    learner.observe(x.tolist(), y, task=0)
    learner.announce([3, 4, 5], 1)
    learner.observe(x.numpy(), np.array(y) + 3, torch.tensor([1, 1, 1, 1]))
    learner.end_task()
    learner.close_journal()
    again = Learner(**settings, journal=tmp_path)
    again.close_journal()
    assert bits(again) == bits(learner)


def test_forgetting_is_made_again(tmp_path: Path):
    settings = {"method": "ncm", "backbone": "identity"}
    learner = Learner(**settings, journal=tmp_path)
    x, y = batch(1)
    learner.observe(x, y)
    learner.forget(x[:1], y[:1])
    learner.close_journal()
    again = Learner(**settings, journal=tmp_path)
    again.close_journal()
    assert bits(again) == bits(learner)


def test_a_journal_of_another_learner_is_refused(tmp_path: Path):
    Learner(**SMALL, journal=tmp_path).close_journal()
    with pytest.raises(ValueError, match="of a learner with other settings"):
        Learner(**{**SMALL, "seed": 2}, journal=tmp_path)


def test_a_new_learner_does_not_take_a_journal_whose_beginning_is_in_a_checkpoint(tmp_path: Path):
    learner = Learner(**SMALL, journal=CallJournal(tmp_path / "journal", segment_bytes=1))
    for seed in range(3):
        learner.observe(*batch(seed))
        learner.save(tmp_path / "learner")
    learner.close_journal()
    with pytest.raises(CorruptJournal, match="load the checkpoint that belongs to it"):
        Learner(**SMALL, journal=tmp_path / "journal")


def test_a_copy_is_in_no_journal_and_a_merge_is_refused(tmp_path: Path):
    learner = Learner("ncm", backbone="identity", journal=tmp_path)
    learner.observe(*batch(1))
    other = copy.deepcopy(learner)
    other.observe(*batch(2))
    with pytest.raises(ValueError, match="cannot stand in a journal"):
        learner.merge(other)
    learner.close_journal()
    again = Learner("ncm", backbone="identity", journal=tmp_path)
    again.close_journal()
    assert bits(again) == bits(learner)


def test_a_killed_learner_has_learned_all_that_it_said():
    script = Path(__file__).parents[1] / "benchmarks" / "kills.py"
    if not script.exists():
        pytest.skip("the benchmarks are not here")
    command = [sys.executable, str(script), "--kills", str(N_KILLS)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert re.search(rf"^{N_KILLS} SIGKILLs", said)
    assert "stopped by itself" not in said
    for name in ("that lost what was said", "with other bits"):
        assert re.search(rf"restarts {name} +0$", said, re.MULTILINE)


@pytest.mark.parametrize("change", ["observe", "label"])
def test_an_interrupted_call_is_learned_again_if_it_was_learned_and_only_then(change: str, tmp_path: Path):
    x, y = batch(0)

    def made(folder: Path) -> Learner:
        learner = Learner(**SMALL, journal=folder)
        learner.observe(*batch(1))
        learner.predict(x, ids=[1, 2, 3, 4])
        return learner

    def act(learner: Learner) -> None:
        if change == "observe":
            learner.observe(x, y)
        else:
            learner.label([1, 2, 3, 4], y)

    counted, first = AtLine(), made(tmp_path / "first")
    counted.run(act, first)
    first.close_journal()
    at_the_ends = [*range(1, 120, 3), *range(counted.count - 15, counted.count + 1)]
    for n in sorted({n for n in at_the_ends if 1 <= n <= counted.count}):
        learner = made(tmp_path / str(n))
        at = AtLine(n)
        at.run(act, learner)
        if linecache.getline(at.file, at.line).strip().startswith("with "):
            learner.close_journal()  # here no signal is handled: the lock would stay locked
            continue
        learner.observe(*batch(2))
        learner.close_journal()
        again = Learner(**SMALL, journal=tmp_path / str(n))
        again.close_journal()
        assert bits(again) == bits(learner), at.where
