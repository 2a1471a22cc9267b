"""Columns of tables as numbers."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.columns import LOOKED_AT, MOST_PLACES, RATES, BadRow, Columns
from holdfast.core.input_watch import InputWarning
from holdfast.tables import TableLearner
from tests.support.same import assert_same

Rows = list[dict[str, Any]]


def settled(rows: Rows) -> Columns:
    """Columns that learned rows, which decided their kinds."""
    columns = Columns()
    columns.settle(rows)
    columns.learn(rows)
    return columns


def test_each_kind_of_column_becomes_its_numbers() -> None:
    given = [{"n": "1", "m": "?", "c": "ab"[i % 2], "many": f"t{i}", "none": None} for i in range(10)]
    given[0]["m"] = "4"
    columns = settled(given)
    assert columns.flagged == ["m", "none"]
    assert columns.categories["c"] == ["a", "b"]
    first, second = columns.vectors(given[:2]).tolist()
    assert first[:7] == [1.0, 4.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert second[:7] == [1.0, 4.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    assert first[7:23] == [1.0] + 15 * [0.0]
    assert first[23:] == RATES * [0.0] + [0.0, 1.0] + 4 * [0.0]
    assert columns.vector_names() == ["n", "m", "m"] + 4 * ["c"] + (16 + RATES) * ["many"] + 6 * ["none"]
    assert len(first) == columns.width == len(columns.vector_names())


def test_a_text_that_comes_later_gets_a_place_of_its_own_until_there_are_none() -> None:
    columns = settled([{"c": "ab"[i % 2]} for i in range(10)])
    for text in "cd":
        columns.learn([{"c": text}])
    assert columns.vectors([{"c": text} for text in "abcd"]).tolist() == torch.eye(4).tolist()
    columns.learn([{"c": "e"}])
    assert columns.vectors([{"c": "e"}]).sum() == 1
    assert columns.categories["c"] == ["a", "b", "c", "d"]


def test_the_classes_of_a_category_are_averaged_as_slow_loops_do() -> None:
    rows = [{"c": f"t{i}"} for i in range(10)]
    columns = Columns()
    columns.settle(rows)
    columns.learn(rows[:1], [0])
    for y in (1, 1, 9, 0):
        columns.learn(rows[:1], [y])
    shares = np.full(RATES, 1 / RATES)
    for n, y in enumerate((0, 1, 1, 9, 0), start=1):
        came = np.eye(RATES)[y % RATES]
        shares += (came - shares) / (1 + n)
    np.testing.assert_allclose(columns.vectors(rows[:1])[0, MOST_PLACES:], shares, rtol=1e-6)
    assert columns.vectors(rows[1:2])[0, MOST_PLACES:].tolist() == RATES * [0.0]


def test_a_table_of_hundreds_of_categories_is_learned() -> None:
    rng = np.random.default_rng(0)
    known = rng.integers(0, 2, 200)
    rows = [{"city": f"city {c}", "label": int(known[c])} for c in rng.integers(0, 200, 1500)]
    assert TableLearner("label", hidden=16).learn(rows).window > 0.9


def test_a_column_without_values_in_the_first_rows_takes_numbers_and_texts_later() -> None:
    columns = settled([{"a": 1.0, "late": ""} for _ in range(10)])
    for row in ({"a": 1.0, "late": "3.5"}, {"a": 1.0, "late": "red"}):
        columns.check(row, "row")
        columns.learn([row])
    number, text, gone = columns.vectors([{"a": 1, "late": 2}, {"a": 1, "late": "red"}, {"a": 1}])[:, 1:].tolist()
    assert number == [2.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert text == [3.5, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert gone == [3.5, 1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "values",
    [
        [10**18 + 7 * i for i in range(10)],
        [str(10**18 + 7 * i) for i in range(10)],
        [1_700_000_000_000.0 + 7 * i for i in range(10)],
        [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=7 * i) for i in range(10)],
    ],
    ids=["identifiers", "texts", "milliseconds", "dates"],
)
def test_large_numbers_that_lie_close_together_stay_apart(values: list[Any]) -> None:
    rows = [{"t": value} for value in values]
    columns = settled(rows)
    columns.check(rows[0], "row 0")
    assert np.diff(columns.vectors(rows)[:, 0]).tolist() == 9 * [7.0]
    again = Columns()
    again.load_state_dict(columns.state_dict())
    assert_same(again.vectors(rows), columns.vectors(rows))


def test_dates_count_in_universal_time_and_decimals_are_numbers() -> None:
    rows: Rows = [{"t": datetime.date(1970, 1, 2), "d": Decimal("0.5")}, {"t": datetime.datetime(1970, 1, 1, 1)}]
    assert settled(rows).vectors(rows)[:, 0].tolist() == [86400.0, 3600.0]
    assert settled(rows).vectors(rows)[0, 1] == 0.5


def test_a_column_of_heavy_tails_is_compressed() -> None:
    rows = [{"a": value} for value in (1, -2, 3, 0, 4, 5, -1e7)]
    found = settled(rows).vectors(rows)[:, 0]
    np.testing.assert_allclose(found, np.arcsinh([value["a"] / 3.5 for value in rows]), rtol=1e-6)


def test_a_missing_value_becomes_the_running_mean_with_a_warning_where_none_was_at_first() -> None:
    columns = settled([{"a": 1.0}, {"a": 3.0}])
    with pytest.warns(InputWarning, match="column 'a' has missing values"):
        columns.learn([{"a": math.nan}])
    assert columns.vectors([{"a": None}, {}]).tolist() == [[2.0], [2.0]]


def test_a_name_in_a_column_is_warned_of_with_small_batches() -> None:
    columns = Columns()
    columns.settle([{"id": f"name {i}"} for i in range(10)])
    for start in range(0, LOOKED_AT - 10, 10):
        columns.learn([{"id": f"name {start + i}"} for i in range(10)], list(range(10)))
    with pytest.warns(InputWarning, match="column 'id' has another text in nearly each row"):
        columns.learn([{"id": f"name {LOOKED_AT + i}"} for i in range(10)], list(range(10)))


@pytest.mark.parametrize("text", ["1,234.50", "12 %", "$3.20", "0,5", "€ 7"])
def test_numbers_that_are_written_as_texts_are_warned_of(text: str) -> None:
    with pytest.warns(InputWarning, match="column 'price' holds texts such as .* write plain numbers"):
        settled([{"price": text}, {"price": "1"}])


def test_a_huge_number_in_the_first_rows_is_a_bad_row() -> None:
    for huge in (10**400, 1e300, -math.inf, "1" * 200):
        columns = Columns()
        columns.settle([{"a": 2.0**30}, {"a": 2.0**30 + 1}, {"a": huge}])
        with pytest.raises(BadRow, match="column 'a'"):
            columns.check({"a": huge}, "row 2")
