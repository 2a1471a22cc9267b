"""Each metric against slow loops in the symbols of its paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.experiments.anytime import (
    accuracy_by_class,
    area_under_accuracy,
    average_anytime_accuracy,
    faded_accuracy,
    minimum_accuracy,
    prequential_accuracy,
    windowed_accuracy,
    worst_case_accuracy,
)

fractions = st.floats(0, 1)
records = st.lists(st.booleans(), min_size=1, max_size=60)


@st.composite
def curves(draw: st.DrawFn) -> tuple[np.ndarray, list[int]]:
    """Accuracies on k tasks, at the end of each task and at moments between, and the moments of the ends."""
    k = draw(st.integers(1, 5))
    learned: list[int] = []
    for _ in range(k):
        learned.append((learned[-1] if learned else -1) + draw(st.integers(1, 4)))
    curve = np.full((learned[-1] + 1, k), np.nan)
    for n in range(len(curve)):
        for i in range(k):
            if i == 0 or n > learned[i - 1]:
                curve[n, i] = draw(fractions)
    return curve, learned


@given(st.lists(st.tuples(st.integers(1, 50), fractions), min_size=1, max_size=20))
def test_the_area_is_the_mean_over_samples(parts):
    by_sample = [a for n, a in parts for _ in range(n)]
    n_samples = np.cumsum([n for n, _ in parts])
    assert area_under_accuracy(n_samples, [a for _, a in parts]) == pytest.approx(np.mean(by_sample))


@given(curves())
def test_anytime_accuracy_is_a_mean_of_means(made):
    curve, _ = made
    rows = [[a for a in row if not math.isnan(a)] for row in curve.tolist()]
    assert average_anytime_accuracy(curve) == pytest.approx(sum(sum(row) / len(row) for row in rows) / len(rows))


@given(curves())
def test_the_worst_case_takes_the_worst_accuracy_since_each_task_was_learned(made):
    curve, t = made
    k = len(t)
    worst = [min(curve[n][i] for n in range(t[i] + 1, t[-1] + 1)) for i in range(k - 1)]
    if k > 1:
        assert minimum_accuracy(curve, t) == pytest.approx(sum(worst) / (k - 1))
    else:
        assert math.isnan(minimum_accuracy(curve, t))
    expected = curve[t[-1]][k - 1] / k + (1 - 1 / k) * (sum(worst) / (k - 1) if k > 1 else 0)
    assert worst_case_accuracy(curve, t) == pytest.approx(expected)


@given(records, st.integers(1, 70))
def test_a_window_counts_the_last_samples_only(right, window):
    expected = [np.mean(right[max(0, i + 1 - window) : i + 1]) for i in range(len(right))]
    assert windowed_accuracy(right, window) == pytest.approx(expected)


@given(records, st.floats(0.01, 1))
def test_fading_weighs_each_sample_by_its_age(right, fading):
    for i, value in enumerate(faded_accuracy(right, fading)):
        weights = [fading ** (i - j) for j in range(i + 1)]
        assert value == pytest.approx(sum(w * r for w, r in zip(weights, right, strict=False)) / sum(weights))


@given(records)
def test_without_fading_and_with_an_endless_window_all_three_agree(right):
    whole = prequential_accuracy(right)
    assert faded_accuracy(right, 1.0)[-1] == pytest.approx(whole)
    assert windowed_accuracy(right, len(right))[-1] == pytest.approx(whole)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", "c"])), min_size=1, max_size=40))
def test_classes_are_counted_apart(pairs):
    right, y = zip(*pairs, strict=True)
    found = accuracy_by_class(right, y)
    assert set(found) == set(y)
    for label, accuracy in found.items():
        own = [r for r, c in pairs if c == label]
        assert accuracy == pytest.approx(sum(own) / len(own))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: area_under_accuracy([100, 100], [0.5, 0.5]), "does not increase"),
        (lambda: area_under_accuracy([100], [0.5, 0.5]), "one accuracy a moment"),
        (lambda: area_under_accuracy([100], [50.0]), "fractions of 1"),
        (lambda: area_under_accuracy([100], [float("nan")]), "fractions of 1"),
        (lambda: average_anytime_accuracy([[float("nan")]]), "no accuracy at all"),
        (lambda: minimum_accuracy([[0.5, 0.5]], [0, 0]), "rows of the curve"),
        (lambda: minimum_accuracy([[0.5, 0.5]], [0, 1]), "rows of the curve"),
        (lambda: minimum_accuracy([[0.5, 0.1], [float("nan"), 0.1]], [0, 1]), "was not measured"),
        (lambda: prequential_accuracy([]), "true and false"),
        (lambda: prequential_accuracy([0.5]), "true and false"),
        (lambda: windowed_accuracy([True], 0), "window is 0"),
        (lambda: faded_accuracy([True], 0), "fading is 0"),
        (lambda: accuracy_by_class([True], [1, 2]), "one a sample"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
