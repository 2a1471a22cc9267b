from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.core import journal as journal_module
from holdfast.core.checkpoint import previous_checkpoint
from holdfast.learner import Learner
from holdfast.serve import hosted as hosted_module
from holdfast.serve.hosted import MODEL, Busy, Hosted, KeyTaken, NotDurable, create_hosted, open_hosted
from tests.support.bits import bits, observed
from tests.support.serving import SMALL, busy, toy_batch


def batch(seed: int) -> tuple[torch.Tensor, list[int]]:
    x, y = toy_batch(seed)
    return torch.tensor(x), y


def observe(hosted: Hosted, seed: int, key: str | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = hosted.call("observe", *batch(seed), key=key, digest=str(seed))[0].result()
    return answer


def after(*seeds: int) -> str:
    """The bits of a learner that observed these batches."""
    return bits(observed(Learner(**SMALL), map(batch, seeds)))


@contextmanager
def opened(folder: Path, **limits: Any) -> Iterator[Hosted]:
    there = (folder / MODEL).exists()
    hosted = open_hosted(folder, **limits) if there else create_hosted(folder, Learner(**SMALL), **limits)
    try:
        yield hosted
    finally:
        hosted.close()


def crashed(hosted: Hosted, to: Path) -> Path:
    """The folder as a crash at this moment would leave it."""
    shutil.copytree(hosted.folder, to)
    return to


def test_after_a_crash_the_bits_are_those_of_all_that_was_answered(tmp_path: Path):
    with opened(tmp_path / "a") as hosted:
        for seed in range(6):
            observe(hosted, seed)
            if seed == 2:
                hosted.save()
        folder = crashed(hosted, tmp_path / "b")
    with opened(folder) as again:
        assert again.n_replayed == 3
        assert bits(again.learner) == after(*range(6))
        assert again.record.accuracy.n == 24
        assert again.snapshot is not None
        assert again.snapshot.n_observed == 6


def test_closing_saves_so_that_nothing_is_replayed(tmp_path: Path):
    with opened(tmp_path) as hosted:
        observe(hosted, 1)
    with opened(tmp_path) as again:
        assert again.n_replayed == 0
        assert bits(again.learner) == after(1)


def test_the_checkpoint_before_stands_in_for_a_damaged_one(tmp_path: Path):
    with opened(tmp_path) as hosted:
        for seed in range(4):
            observe(hosted, seed)
            hosted.save()
    (tmp_path / MODEL).write_bytes(b"damaged")
    assert previous_checkpoint(tmp_path / MODEL).exists()
    with pytest.warns(UserWarning, match="going on from the one before"):
        hosted = open_hosted(tmp_path)
    assert bits(hosted.learner) == after(*range(4))
    hosted.close()


def test_a_refused_batch_changes_nothing_now_or_after_a_crash(tmp_path: Path):
    with opened(tmp_path / "a") as hosted:
        observe(hosted, 1)
        for y in ([0, 1, 2, 99], [0, 1], [-1, 0, 0, 0]):
            with pytest.raises(ValueError, match=r"label|y has"):
                hosted.call("observe", batch(2)[0], y)[0].result()
        with pytest.raises(ValueError, match="this learner takes"):
            hosted.call("observe", torch.ones(1, 9), [0])[0].result()
        observe(hosted, 3)
        folder = crashed(hosted, tmp_path / "b")
        assert bits(hosted.learner) == after(1, 3)
    with opened(folder) as again:
        assert bits(again.learner) == after(1, 3)


def test_a_key_is_learned_once_also_after_a_crash_and_after_a_checkpoint(tmp_path: Path):
    with opened(tmp_path / "a") as hosted:
        first = observe(hosted, 1, key="k")
        assert observe(hosted, 1, key="k") == first
        assert hosted.call("observe", *batch(1), key="k", digest="1")[1]
        with pytest.raises(KeyTaken, match="came before with another request"):
            hosted.call("observe", *batch(2), key="k", digest="2")
        folder = crashed(hosted, tmp_path / "b")
    for _ in range(2):  # once replayed, once from the checkpoint that closing wrote
        with opened(folder) as again:
            assert observe(again, 1, key="k") == first
            assert bits(again.learner) == after(1)


def test_a_key_that_was_refused_can_be_used_again(tmp_path: Path):
    with opened(tmp_path) as hosted:
        answer, _ = hosted.call("observe", batch(1)[0], [0, 0, 0, 99], key="k", digest="bad")
        with pytest.raises(ValueError, match="99"):
            answer.result()
        assert observe(hosted, 1, key="k")["n_observed"] == 1


def test_two_requests_with_one_key_at_the_same_time_are_learned_once(tmp_path: Path):
    with opened(tmp_path) as hosted:
        with busy(hosted):
            one, again_one = hosted.call("observe", *batch(1), key="k", digest="1")
            two, again_two = hosted.call("observe", *batch(1), key="k", digest="1")
        assert (again_one, again_two) == (False, True)
        assert one.result() == two.result()
        assert bits(hosted.learner) == after(1)


def test_calls_that_wait_together_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    n_syncs = 0
    sync = os.fsync

    def counted(file: int) -> None:
        nonlocal n_syncs
        n_syncs += 1
        sync(file)

    with opened(tmp_path) as hosted:
        with busy(hosted):
            answers = [hosted.call("observe", *batch(seed))[0] for seed in range(10)]
            monkeypatch.setattr(journal_module.os, "fsync", counted)
        assert [answer.result()["number"] for answer in answers] == list(range(1, 11))
        assert n_syncs <= 2  # one more for the folder of a new segment
        assert bits(hosted.learner) == after(*range(10))


def test_predictions_do_not_wait_for_learning(tmp_path: Path):
    with opened(tmp_path) as hosted:
        observe(hosted, 1)
        with busy(hosted):
            answer, _ = hosted.call("observe", *batch(2))
            snapshot = hosted.snapshot
            assert snapshot is not None
            assert snapshot.predict(batch(3)[0]).shape == (4,)
            assert not answer.done()
        answer.result()
        assert hosted.snapshot is not snapshot


def test_a_full_queue_refuses_and_a_call_can_be_withdrawn(tmp_path: Path):
    with opened(tmp_path, max_waiting=2) as hosted:
        with busy(hosted):
            kept, withdrawn = (hosted.call("observe", *batch(seed), key=str(seed))[0] for seed in (1, 2))
            with pytest.raises(Busy, match="too many"):
                hosted.call("observe", *batch(3))
            assert hosted.withdraw(withdrawn)
            assert not hosted.withdraw(withdrawn)
        kept.result()
        assert not hosted.withdraw(kept)
        assert bits(hosted.learner) == after(1)


def test_a_full_disk_is_said_and_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with opened(tmp_path / "a") as hosted:
        observe(hosted, 1)
        write = hosted.journal.journal.write

        def full(_: bytes) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(hosted.journal.journal, "write", full)
        with pytest.raises(NotDurable, match="nothing was learned: No space left"):
            observe(hosted, 2)
        monkeypatch.setattr(hosted.journal.journal, "write", write)
        observe(hosted, 3)
        folder = crashed(hosted, tmp_path / "b")
        assert bits(hosted.learner) == after(1, 3)
    with opened(folder) as again:
        assert bits(again.learner) == after(1, 3)


def test_after_a_failed_sync_the_disk_decides_what_was_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with opened(tmp_path) as hosted:
        observe(hosted, 1)

        def fails(_: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(journal_module.os, "fsync", fails)
            with pytest.raises(NotDurable, match="the disk failed"):
                observe(hosted, 2, key="k")
        assert hosted.failure is not None
        assert observe(hosted, 2, key="k")["n_observed"] == 2  # not a third time, whatever is on the disk
        assert hosted.failure is None
        assert bits(hosted.learner) == after(1, 2)


def test_a_checkpoint_is_written_before_the_journal_is_full(tmp_path: Path):
    with opened(tmp_path, max_journal_bytes=3000) as hosted:
        for seed in range(40):
            observe(hosted, seed)
        assert hosted.journal.nbytes <= 3000
        assert bits(hosted.learner) == after(*range(40))
    with opened(tmp_path, max_journal_bytes=3000) as again:
        assert bits(again.learner) == after(*range(40))


def test_another_learner_takes_the_place_of_one_and_leaves_nothing_of_it(tmp_path: Path):
    with opened(tmp_path) as hosted:
        observe(hosted, 1)
    other = Learner(**SMALL)
    other.observe(*batch(7))
    create_hosted(tmp_path, other).close()
    assert not previous_checkpoint(tmp_path / MODEL).exists()
    assert len(list(tmp_path.glob("journal-*"))) == 1
    with opened(tmp_path) as again:
        assert bits(again.learner) == after(7)


def test_tasks_end_and_the_end_is_replayed(tmp_path: Path):
    settings = {**SMALL, "setting": "class", "method": "ewc"}
    hosted = create_hosted(tmp_path / "a", Learner(**settings))
    for task in range(2):
        hosted.call("observe", *batch(task), task)[0].result()
        hosted.call("end_task")[0].result()
    folder = crashed(hosted, tmp_path / "b")
    expected = bits(hosted.learner)
    hosted.close()
    with opened(folder) as again:
        assert again.learner.running_task is None
        assert bits(again.learner) == expected


def test_kept_inputs_are_learned_when_their_labels_come_also_after_a_crash(tmp_path: Path):
    with opened(tmp_path / "a") as hosted:
        observe(hosted, 1)
        hosted.keep(["a", "b", 3, "d"], batch(2)[0])
        hosted.keep(["e"], batch(3)[0][:1])
        hosted.label([3, "a"], [0, 1])[0].result()
        hosted.save()
        hosted.label(["e"], [2], key="k", digest="e")[0].result()
        folder = crashed(hosted, tmp_path / "b")
    learner = Learner(**SMALL)
    learner.observe(*batch(1))
    learner.observe(batch(2)[0][[2, 0]], [0, 1])
    learner.observe(batch(3)[0][:1], [2])
    with opened(folder) as again:
        assert bits(again.learner) == bits(learner)
        assert len(again.waiting) == 2
        assert again.label(["e"], [2], key="k", digest="e")[1]
        with pytest.raises(ValueError, match="no input waits under 'e'"):
            again.label(["e"], [2])
        again.label(["b"], [1])[0].result()
        learner.observe(batch(2)[0][1:2], [1])
        assert bits(again.learner) == bits(learner)


def test_inputs_whose_label_is_refused_wait_again(tmp_path: Path):
    with opened(tmp_path) as hosted:
        observe(hosted, 1)
        hosted.keep(["a"], batch(2)[0][:1])
        with pytest.raises(ValueError, match="99"):
            hosted.label(["a"], [99])[0].result()
        with busy(hosted):
            answer, _ = hosted.label(["a"], [1])
            with pytest.raises(ValueError, match="no input waits"):
                hosted.label(["a"], [1])
            assert hosted.withdraw(answer)
        assert hosted.label(["a"], [1])[0].result()["n_observed"] == 2


def test_old_inputs_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hosted_module, "INPUT_BYTES", 3 * 5 * 4)
    with opened(tmp_path) as hosted:
        observe(hosted, 1)
        hosted.keep(["a", "b"], batch(2)[0][:2])
        hosted.keep(["c", "d"], batch(3)[0][:2])
        with pytest.raises(ValueError, match="'a'"):
            hosted.label(["a"], [1])
        hosted.label(["b", "c", "d"], [1, 1, 1])[0].result()
