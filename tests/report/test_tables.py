from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from holdfast.report.tables import Cell, Column, Row, Table, judge, parse_printed, with_best

ACCURACY, LOSS, TIME = Column("A", 2, "more"), Column("F", 3, "less"), Column("ms", 2)


def table(column: Column, *rows: dict[int, float]) -> Table:
    return Table("t", "t", "method", (column,), tuple(Row(str(i), str(i), (Cell(v),)) for i, v in enumerate(rows)))


def best(made: Table) -> list[bool]:
    return [row.cells[0].best for row in with_best(made).rows]


def test_a_cell_has_the_mean_and_the_populations_deviation():
    cell = Cell({1: 1.0, 2: 2.0, 3: 6.0}, paper=parse_printed("2.50"))
    assert cell.mean == 3
    assert cell.std == pytest.approx(np.std([1, 2, 6], ddof=0))
    assert cell.difference == 0.5


def test_the_best_is_marked_only_beyond_the_noise():
    ahead, behind = {1: 70.0, 2: 71.0, 3: 72.0}, {1: 60.0, 2: 61.5, 3: 61.9}
    noisy = {1: 75.0, 2: 60.0, 3: 80.0}
    assert best(table(ACCURACY, behind, ahead)) == [False, True]
    assert best(table(LOSS, behind, ahead)) == [True, False]
    assert best(table(ACCURACY, behind, ahead, noisy)) == [False, False, False]
    assert best(table(TIME, behind, ahead)) == [False, False]


def test_the_best_needs_two_seeds_that_the_runner_up_has_too():
    assert best(table(ACCURACY, {1: 90.0}, {1: 10.0})) == [False, False]
    assert best(table(ACCURACY, {1: 90.0, 2: 90.5}, {1: 10.0, 3: 11.0})) == [False, False]
    assert best(table(ACCURACY, {1: 90.0, 2: 90.5, 4: 91.0}, {1: 10.0, 2: 10.6, 3: 11.0})) == [True, False]


def test_an_order_that_shared_seeds_turn_round_marks_no_one():
    by_mean = {1: 10.0, 2: 11.0, 3: 99.0}
    by_shared_seeds = {1: 20.0, 2: 21.1}
    assert best(table(ACCURACY, by_mean, by_shared_seeds)) == [False, False]


def test_bounds_and_runs_of_other_settings_do_not_compete():
    rows = table(ACCURACY, {1: 90.0, 2: 90.5}, {1: 70.0, 2: 70.6}, {1: 50.0, 2: 50.4}).rows
    bound = replace(rows[0], is_bound=True)
    departing = replace(rows[0], cells=(replace(rows[0].cells[0], departures=("lr=1 instead of 2",)),))
    for first in (bound, departing):
        assert best(replace(table(ACCURACY), rows=(first, *rows[1:]))) == [False, True, False]


@given(
    first=st.lists(st.integers(0, 1000), min_size=2, max_size=5),
    second=st.lists(st.integers(0, 1000), min_size=5, max_size=5),
)
def test_the_mark_is_scipys_paired_test(first, second):
    mine, others = np.array(first) / 10, np.array(second[: len(first)]) / 10
    if mine.mean() == others.mean() or len(set(np.array(first) - second[: len(first)])) == 1:
        return
    made = best(table(ACCURACY, dict(enumerate(mine)), dict(enumerate(others))))
    expected = bool(stats.ttest_rel(mine, others).pvalue < 0.05)
    assert made == [expected and mine.mean() > others.mean(), expected and mine.mean() < others.mean()]


def test_printed_numbers_know_their_rounding():
    number = parse_printed("0.02±0.001")
    assert (number.mean, number.std, number.rounding) == (0.02, 0.001, 0.005)
    assert parse_printed("95.30").std is None
    assert parse_printed("652").rounding == 0.5
    assert [parse_printed(text) for text in ("-", "2P+MH", "", "1±", "±2")] == [None] * 5


@pytest.mark.parametrize(
    ("values", "printed", "word"),
    [
        ([71.0, 73.0], "70.50±0.50", "reproduced"),  # 1.5 off, and 1 + 0.5 + 0.005 are allowed
        ([71.0, 73.0], "70.49±0.50", "above"),
        ([71.0, 73.0], "74.0±0.5", "below"),
        ([71.0, 73.0], "73.5±0.5", "reproduced"),
        ([71.0, 73.0], "70.4±0.5", "above"),
        ([0.0249], "0.02±0.000", "reproduced"),
        ([0.0251], "0.02±0.000", "above"),
        ([95.305], "95.30", "reproduced"),
        ([95.306], "95.30", "above"),
    ],
)
def test_a_number_is_reproduced_within_both_spreads_and_the_rounding(values, printed, word):
    assert judge(dict(enumerate(values)), parse_printed(printed)).word == word


def test_a_verdict_with_reasons_is_not_comparable_and_still_says_where_the_number_is():
    verdict = judge({1: 5.0}, parse_printed("7.0"), ("lr=1 instead of 2",), n_full=5)
    assert (verdict.short, verdict.word) == ("not comparable", "below")
    assert verdict.remarks == ("lr=1 instead of 2", "1 of 5 seeds")


@pytest.mark.parametrize(("n_seeds", "told"), [(1, "1 of 3 seeds"), (2, "2 of 3 seeds"), (3, ""), (4, "")])
def test_fewer_seeds_are_a_caution_and_no_reason_against_comparing(n_seeds, told):
    verdict = judge(dict.fromkeys(range(n_seeds), 5.0), parse_printed("7.0"), n_full=3)
    assert (verdict.short, verdict.n_seeds, verdict.remarks) == ("below", told, (told,) if told else ())
