import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.experiments.metrics import (
    average_accuracy,
    forgetting,
    learning_accuracy,
    long_term_remembering,
    summary,
)

NAN = float("nan")
BY_HAND = [
    [0.9, NAN, NAN],
    [0.7, 0.8, NAN],
    [0.8, 0.5, 0.6],
]


def test_average_accuracy_of_the_example_by_hand():
    assert average_accuracy(BY_HAND) == pytest.approx((0.8 + 0.5 + 0.6) / 3)
    assert average_accuracy(BY_HAND, 1) == pytest.approx((0.7 + 0.8) / 2)


def test_forgetting_of_the_example_by_hand():
    # Task 1 was at best 0.9 and is at 0.8; task 2 was at best 0.8 and is at 0.5.
    assert forgetting(BY_HAND) == pytest.approx((0.1 + 0.3) / 2)
    assert forgetting(BY_HAND, 1) == pytest.approx(0.2)


def test_long_term_remembering_of_the_example_by_hand():
    # Two tasks ago 0.1 was lost, one task ago 0.3.
    assert long_term_remembering(BY_HAND) == pytest.approx((2 * 0.1 + 1 * 0.3) / 2)


def test_learning_accuracy_of_the_example_by_hand():
    assert learning_accuracy(BY_HAND) == pytest.approx((0.9 + 0.8 + 0.6) / 3)


def test_a_task_that_got_better_counts_as_negative_forgetting_and_does_not_help_remembering():
    better = [[0.5, NAN], [0.7, 0.9]]
    assert forgetting(better) == pytest.approx(-0.2)
    assert long_term_remembering(better) == 0


def test_forgetting_compares_with_the_best_since_learned_not_with_the_first_or_the_previous_value():
    online = [[0.4, NAN, NAN], [0.9, 0.5, NAN], [0.6, 0.5, 0.5]]
    assert forgetting(online) == pytest.approx((0.3 + 0.0) / 2)


def test_the_first_task_has_no_forgetting():
    assert math.isnan(forgetting(BY_HAND, 0))
    assert summary([[0.5]]) == {"average_accuracy": 0.5, "learning_accuracy": 0.5}


def test_joint_training_has_an_average_and_nothing_else():
    assert summary([[0.5, 0.7, 0.9]]) == {"average_accuracy": pytest.approx(0.7)}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([[90.0, NAN], [80.0, 70.0]], "fractions"),
        ([0.5, 0.6], "matrix"),
        ([[0.5, 0.6, 0.7], [0.5, 0.6, 0.7]], "square"),
        ([[0.5, NAN], [NAN, 0.6]], "missing"),
    ],
)
def test_what_is_no_accuracy_matrix_is_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        forgetting(bad)


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.floats(0, 1), min_size=n * n, max_size=n * n)))
def test_all_metrics_equal_slow_loops_in_the_papers_symbols(numbers):
    T = math.isqrt(len(numbers))
    matrix = np.array(numbers).reshape(T, T)
    matrix[np.triu_indices(T, 1)] = NAN
    a = {(t, j): matrix[t - 1, j - 1] for t in range(1, T + 1) for j in range(1, t + 1)}  # counted from 1

    for t in range(1, T + 1):
        A_t = sum(a[t, j] for j in range(1, t + 1)) / t
        assert average_accuracy(matrix, t - 1) == pytest.approx(A_t)
        if t > 1:
            f = [max(a[k, j] for k in range(j, t)) - a[t, j] for j in range(1, t)]
            assert forgetting(matrix, t - 1) == pytest.approx(sum(f) / (t - 1))
    if T > 1:
        LTR = -sum((T - j) * min(0, a[T, j] - a[j, j]) for j in range(1, T)) / (T - 1)
        assert long_term_remembering(matrix) == pytest.approx(LTR)
    assert learning_accuracy(matrix) == pytest.approx(sum(a[j, j] for j in range(1, T + 1)) / T)
