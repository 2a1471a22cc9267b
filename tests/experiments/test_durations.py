"""What is said of a run's length before it has run."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.experiments.durations import Size, expected_seconds, seconds_until_done, size_of
from holdfast.experiments.experiment import Experiment
from tests.support.experiments import toy_experiment


def test_runs_that_differ_in_the_seed_only_are_of_one_kind() -> None:
    one, other = toy_experiment(seed=1), toy_experiment(seed=2)
    assert size_of(one) == size_of(other)
    assert size_of(toy_experiment(lr=0.2)).kind != size_of(one).kind


@pytest.mark.parametrize(
    ("method", "weight"),
    [
        ("finetune", 1),
        ({"name": "er", "replay_size": 30}, 4),  # 30 beside each batch of 10
        ({"name": "er", "replay_size": 30, "steps_per_batch": 2}, 8),
        ("er", 2),  # by its default
    ],
)
def test_replay_and_steps_make_a_run_heavier(method: object, weight: float) -> None:
    assert size_of(toy_experiment(method=method)).weight == weight


def test_a_method_of_a_file_that_is_not_known_here_has_a_weight_too() -> None:
    assert size_of(Experiment.stored({"stream": "split_digits", "method": "unknown.module:Method"})).weight == 1


def test_the_same_kind_is_believed_before_the_same_stream_and_that_before_any() -> None:
    size = Size("kind", "stream", weight=2)
    any_other = (Size("other", "elsewhere", weight=1), 100.0)
    same_stream = [(Size("other", "stream", weight=4), 8.0), (Size("third", "stream", weight=1), 2.0)]
    same_kind = [(size, 30.0), (size, 50.0)]
    assert expected_seconds(size, []) is None
    assert expected_seconds(size, [any_other]) == 200
    assert expected_seconds(size, [any_other, *same_stream]) == 4  # 2 seconds for each unit of weight
    assert expected_seconds(size, [any_other, *same_stream, *same_kind]) == 40


def test_the_longest_that_waits_goes_to_whoever_is_free_first() -> None:
    # One is free now and takes 5, then 1; the other is free at 4 and takes 3.
    assert seconds_until_done([4], [1, 3, 5], n_workers=2) == 7
    assert seconds_until_done([], [], n_workers=3) == 0


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 3))
def test_the_estimate_is_at_most_four_thirds_of_the_best_plan(waiting: list[int], n_workers: int) -> None:
    best = min(
        max(sum(s for s, w in zip(waiting, plan, strict=True) if w == worker) for worker in range(n_workers))
        for plan in itertools.product(range(n_workers), repeat=len(waiting))
    )
    # Graham's bound for 'longest first' (1969).
    assert best <= seconds_until_done([], waiting, n_workers) <= best * (4 / 3 - 1 / (3 * n_workers)) + 1e-9
