from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.core.calls import CallJournal
from holdfast.core.journal import CorruptJournal
from holdfast.core.journaled import Journaled, journaled


class Sum(Journaled):
    def __init__(self) -> None:
        self.numbers: list[int] = []

    @journaled
    def add(self, number: int, *, times: int = 1) -> int:
        """Add a number; refuse a negative one."""
        if number < 0:
            raise ValueError("negative")
        self.numbers += [number] * times
        return sum(self.numbers)

    @journaled
    def add_two(self, one: int, other: int) -> None:
        self.add(one)
        self.add(other)

    def clear(self) -> None:
        self.numbers.clear()


def opened(folder: Path, **made_of: int) -> Sum:
    found = Sum()
    found.open_journal(folder, made_of)
    return found


def test_calls_are_made_again(tmp_path: Path):
    first = opened(tmp_path)
    assert first.add(1) == 1
    assert first.add(2, times=2) == 5
    with pytest.raises(ValueError, match="negative"):
        first.add(-1)
    first.add_two(3, 4)
    first.close_journal()
    assert first.add(9) == 21  # in no journal any more
    again = Sum()
    assert again.open_journal(tmp_path, {}) == 3
    assert again.numbers == [1, 2, 2, 3, 4]
    again.close_journal()


def test_a_call_inside_a_call_is_written_once(tmp_path: Path):
    first = opened(tmp_path)
    first.add_two(3, 4)
    first.close_journal()
    with CallJournal(tmp_path) as journal:
        assert [call.name for call in journal.calls()] == ["begin", "add_two"]


def test_a_journal_is_of_one_kind_of_object(tmp_path: Path):
    opened(tmp_path, seed=1).close_journal()
    opened(tmp_path, seed=1).close_journal()
    with pytest.raises(ValueError, match="of a learner with other settings"):
        opened(tmp_path, seed=2)
    opened(tmp_path, seed=1).close_journal()  # the lock is free again


def test_a_second_journal_is_refused(tmp_path: Path):
    found = opened(tmp_path / "one")
    with pytest.raises(ValueError, match="close it first"):
        found.open_journal(tmp_path / "two", {})
    found.close_journal()


def test_only_journaled_methods_are_called(tmp_path: Path):
    opened(tmp_path).close_journal()
    with CallJournal(tmp_path) as journal:
        for name in ("clear", "add", "close_journal"):
            with journal.recorded(name, (1,) if name == "add" else ()):
                pass
    with pytest.raises(CorruptJournal, match="names 'clear', which is no journaled call"):
        opened(tmp_path)


def test_a_checkpoint_lets_the_journal_forget_what_the_one_before_holds(tmp_path: Path):
    found = Sum()
    found.open_journal(CallJournal(tmp_path, segment_bytes=1), {})
    assert found.opened_journal is not None
    held = []
    for number in range(1, 4):
        found.add(number)
        held.append(found.opened_journal.journal.last)
        found.opened_journal.saved(held[-1])
    found.close_journal()
    for after, numbers in ((held[1], [3]), (held[2], [])):
        again = Sum()
        again.open_journal(tmp_path, {}, after=after)
        assert again.numbers == numbers
        again.close_journal()
    with pytest.raises(CorruptJournal, match="load the checkpoint that belongs to it"):
        opened(tmp_path)


def test_threads_make_calls_in_the_order_of_the_journal(tmp_path: Path):
    found = opened(tmp_path)
    threads = [threading.Thread(target=lambda n=n: [found.add(10 * n + i) for i in range(5)]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.close_journal()
    again = opened(tmp_path)
    again.close_journal()
    assert again.numbers == found.numbers
