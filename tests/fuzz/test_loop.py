"""The loop of the fuzzers itself."""

from __future__ import annotations

import pytest

from tests.support import tries as loop


def drawn(seed, at_least):
    return [rng.random() for rng in loop.tries(seed, at_least)]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    monkeypatch.delenv("HOLDFAST_FUZZ_MINUTES", raising=False)
    monkeypatch.delenv("HOLDFAST_FUZZ_FIRST", raising=False)


def test_without_minutes_it_makes_just_the_stated_number_of_tries():
    assert len(drawn(1, at_least=5)) == 5
    assert loop.count.n_tries == 5


def test_tries_are_the_same_each_time_and_differ_by_seed_and_number():
    assert drawn(1, at_least=3) == drawn(1, at_least=3)
    assert len({*drawn(1, at_least=3), *drawn(2, at_least=3)}) == 6


def test_a_run_that_begins_with_a_later_try_repeats_it(monkeypatch):
    third = drawn(1, at_least=3)[2]
    monkeypatch.setenv("HOLDFAST_FUZZ_FIRST", "2")
    assert drawn(1, at_least=1) == [third]
    assert loop.count.last == 2


def test_the_minutes_are_shared_by_all_fuzzers(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(loop, "n_fuzzers", 4)
    monkeypatch.setenv("HOLDFAST_FUZZ_MINUTES", "1")  # 15 of these seconds each
    assert len(drawn(1, at_least=2)) == 16
