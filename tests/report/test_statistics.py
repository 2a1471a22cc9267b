import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from holdfast.report.statistics import holm, paired_t_test, two_sided_p


@given(t=st.floats(-60, 60), freedom=st.integers(1, 60))
def test_students_distribution_is_scipys(t, freedom):
    assert two_sided_p(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), rel=1e-9, abs=1e-14)


@given(
    pairs=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=2, max_size=12).filter(
        lambda pairs: len({a - b for a, b in pairs}) > 1
    )
)
def test_the_paired_test_is_scipys(pairs):
    first, second = np.array(pairs).T / 100
    expected = stats.ttest_rel(first, second).pvalue
    assert paired_t_test(first, second) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_pairs_that_all_differ_alike_are_sure_and_equal_ones_are_not():
    assert paired_t_test([2.0, 3.0], [1.0, 2.0]) == 0
    assert paired_t_test([2.0, 3.0], [2.0, 3.0]) == 1


def test_one_pair_says_nothing():
    assert math.isnan(paired_t_test([1.0], [2.0]))


def test_values_without_partners_are_refused():
    with pytest.raises(ValueError, match="2 and 1 values make no pairs"):
        paired_t_test([1.0, 2.0], [2.0])


@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holms_correction_is_the_closed_test_over_all_subsets(p_values):
    """A hypothesis is rejected at α where every subset that holds it has a p-value below α over its size."""
    indices = range(len(p_values))
    for i, corrected in enumerate(holm(p_values)):
        subsets = [s for k in indices for s in itertools.combinations(indices, k + 1) if i in s]
        expected = max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in subsets)
        assert corrected == pytest.approx(expected, rel=1e-12)


def test_a_test_that_says_nothing_counts_but_stays_nothing():
    first, second = holm([math.nan, 0.02])
    assert math.isnan(first)
    assert second == 0.04
