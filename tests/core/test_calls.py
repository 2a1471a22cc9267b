from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.calls import Call, CallJournal, packed, unpacked
from holdfast.core.journal import CorruptJournal, Journal

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


class Sum:
    """Adds numbers up; refuses negative ones, and everything while it is told to."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.refuses = False

    def add(self, number: int) -> None:
        if number < 0 or self.refuses:
            raise ValueError("refused")
        self.numbers.append(number)

    def make(self, call: Call) -> None:
        getattr(self, call.name)(*call.args, **call.kwargs)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(PLAIN, inner)))
def test_plain_values_come_back_as_they_were(value: Any):
    assert same(unpacked(packed(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6, dtype=torch.uint8).reshape(2, 3),
        torch.tensor(3),
        torch.empty(0, 4),
        torch.ones(2, 3, dtype=torch.bfloat16).T,
        torch.tensor([True, False]),
        np.arange(6.0).reshape(2, 3)[:, ::2],
        np.array(["cat", "horse"]),
        np.array(["cat", None, ("a", 1)], dtype=object),
        np.float32(0.1),
        np.zeros((0, 2), dtype=np.int16),
        [[1, 2.5], [True, None], [torch.ones(1), np.ones(2)], []],
    ],
    ids=str,
)
def test_tensors_and_arrays_come_back_as_they_were(value: Any):
    assert same(unpacked(packed(value)), value)


def test_something_that_cannot_be_written_is_named_and_nothing_is_written(tmp_path: Path):
    with CallJournal(tmp_path) as journal:
        with pytest.raises(TypeError, match="a set cannot be written"):
            journal.write("add", [{1, 2}])
        assert journal.last == 0


def test_calls_are_made_again_in_their_order_without_those_that_raised(tmp_path: Path):
    learned = Sum()
    with CallJournal(tmp_path, segment_bytes=200) as journal:
        for number in (3, -1, 4, -1, 5):
            try:
                with journal.recorded("add", [number]):
                    learned.add(number)
            except ValueError:
                pass
    again = Sum()
    again.refuses = False
    with CallJournal(tmp_path) as journal:
        assert journal.replay(again.make) == 3
        assert [call.args for call in journal.calls()] == [(3,), (4,), (5,)]
    assert again.numbers == learned.numbers == [3, 4, 5]


def test_a_refused_call_stays_refused_even_if_it_would_be_accepted_now(tmp_path: Path):
    learned = Sum()
    learned.refuses = True  # as memory may be short once
    with CallJournal(tmp_path) as journal, pytest.raises(ValueError, match="refused"), journal.recorded("add", [7]):
        learned.add(7)
    again = Sum()
    with CallJournal(tmp_path) as journal:
        assert journal.replay(again.make) == 0


def test_a_call_whose_refusal_a_crash_kept_from_the_disk_is_refused_again(tmp_path: Path):
    with CallJournal(tmp_path) as journal:
        for number in (1, -2):
            journal.sync(journal.write("add", [number]))  # the crash comes before either is made
    again = Sum()
    with CallJournal(tmp_path) as journal:
        assert journal.replay(again.make) == 1
        with journal.recorded("add", [3]):
            again.add(3)
    third = Sum()
    with CallJournal(tmp_path) as journal:
        assert journal.replay(third.make) == 2
    assert third.numbers == again.numbers == [1, 3]


def test_a_call_that_was_made_and_now_raises_is_an_error_not_a_loss(tmp_path: Path):
    with CallJournal(tmp_path) as journal:
        for number in (1, 2):
            with journal.recorded("add", [number]):
                pass
    broken = Sum()
    broken.refuses = True
    with CallJournal(tmp_path) as journal, pytest.raises(CorruptJournal, match=r"call 1 .* now raises: refused"):
        journal.replay(broken.make)


def test_calls_that_a_checkpoint_holds_are_left_out_and_can_be_forgotten(tmp_path: Path):
    with CallJournal(tmp_path, segment_bytes=1) as journal:
        for number in range(1, 6):
            with journal.recorded("add", [number]):
                pass
        journal.forget(3)
    again = Sum()
    with CallJournal(tmp_path) as journal:
        assert journal.replay(again.make, after=3) == 2
        with pytest.raises(CorruptJournal, match="holds the records 4 to 5, but the checkpoint holds those up to 1"):
            journal.replay(again.make, after=1)
        with pytest.raises(CorruptJournal, match="load the checkpoint that belongs to it"):
            journal.replay(again.make, after=9)
    assert again.numbers == [4, 5]


def test_notes_are_kept_beside_the_arguments(tmp_path: Path):
    with CallJournal(tmp_path) as journal:
        journal.sync(journal.write("add", [1], {"twice": False}, {"key": "abc"}))
        (call,) = journal.calls()
    assert call == Call(1, "add", (1,), {"twice": False}, {"key": "abc"})


def test_a_full_journal_refuses_a_call_before_it_is_made_and_has_room_for_refusals(tmp_path: Path):
    with CallJournal(tmp_path, max_bytes=1000) as journal:
        numbers = [journal.write("add", [i]) for i in range(3)]
        with pytest.raises(OSError, match="may hold 1,000"):
            journal.write("add", ["x" * 700])
        for number in numbers:
            journal.refuse(number)
        assert journal.nbytes <= 1000
        assert journal.replay(Sum().make) == 0


def test_a_journal_that_cannot_say_a_refusal_takes_no_more_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_: bytes) -> int:
        raise OSError("no space")

    with CallJournal(tmp_path) as journal:
        number = journal.write("add", [-1])
        with monkeypatch.context() as patched:
            patched.setattr(journal.journal, "append", full)
            with pytest.raises(OSError, match="no space"):
                journal.refuse(number)
        with pytest.raises(OSError, match="open it again"):
            journal.write("add", [1])
    with CallJournal(tmp_path) as journal:
        assert journal.replay(Sum().make) == 0
        assert list(journal.calls()) == []


def written(text: str) -> bytes:
    """A record of this text and no arrays."""
    return len(text).to_bytes(4, "little") + text.encode()


STRANGE = {
    "empty": b"",
    "cut": b"\xff\xff\xff\xff",
    "deep": written("[" * 100_000),
    "no key": written('{"dict":[[["x"],1]]}'),
    "no dtype": written('{"tensor":["load",[1],0]}'),
    "a size of nothing": written('{"tensor":["float32",[99999999999],0]}'),
    "another shape": written('{"objects":[[3,3],[1]]}'),
    "no dict": packed([1, 2]),
    "no call": packed({"made": 0}),
    "a text as number": packed({"call": "observe", "args": [], "kwargs": {}, "note": {}, "made": "x"}),
    "names that are none": packed({"call": "observe", "args": [], "kwargs": {1: 2}, "note": {}, "made": 0}),
    "refused by name": packed({"refused": "observe", "made": 0}),
}


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE)
def test_records_that_are_no_calls_are_refused(tmp_path: Path, content: bytes) -> None:
    with Journal(tmp_path) as journal:
        journal.append(content)
    with CallJournal(tmp_path) as calls, pytest.raises(CorruptJournal):
        calls.replay(print)
