"""Tables leave out columns where they do not fit, and never a digit."""

from __future__ import annotations

import io
import re

import pytest

from holdfast.cli import options
from holdfast.cli.printing import console
from holdfast.report.fitting import not_shown
from holdfast.report.rendering import Grid, Piece, terminal

HEADER = ["method", "A_T (%)", "F_T", "seconds", "seeds"]
ROWS = [["er with a long name", "81.99±0.31", "0.112±0.003", "1,234.5", "5"], ["drr", "87.72±0.56", "-", "3.1", "5"]]


def printed(width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    file = io.StringIO()
    monkeypatch.setattr(options, "out", console(file=file, width=width, soft_wrap=True))
    options.print_table("title", HEADER, ROWS, advice="--columns chooses")
    return file.getvalue()


@pytest.mark.parametrize(
    ("width", "missing"),
    [
        (80, []),
        (46, ["seconds"]),
        (36, ["F_T", "seconds"]),
        (24, ["F_T", "seconds", "seeds"]),
        (8, ["F_T", "seconds", "seeds"]),
    ],
)
def test_columns_go_from_the_right_and_the_seeds_last(width, missing, monkeypatch):
    text = printed(width, monkeypatch)
    for i, name in enumerate(HEADER):
        for row in ROWS:
            assert (row[i] in re.sub(r"\s+", " ", text)) == (name not in missing) or len(row[i]) < 4 or i == 0
    assert "…" not in text
    if missing:
        assert f"not shown in {width} columns: {', '.join(missing)} (--columns chooses)" in text
    else:
        assert "not shown" not in text


def test_many_missing_columns_are_not_all_listed():
    assert not_shown([str(i) for i in range(9, 18)], 60, "wider") == "not shown in 60 columns: 9, 10, 11 … 17 (wider)"


def test_the_papers_number_and_its_distance_go_with_ours():
    header = ["method", "A_T (%)", "paper", "Δ", "F_T", "paper", "Δ", "seeds"]
    line = [(Piece(text),) for text in ("er", "81.99", "80.00±1.00", "+1.99", "0.112", "0.1", "+0.012", "5")]
    grid = Grid("table-0", (), "lrrrrrrr", header, [line])
    narrow, wide = io.StringIO(), io.StringIO()
    console(file=narrow, width=50).print(terminal(grid, 50))
    console(file=wide, width=120).print(terminal(grid, 120))
    assert "80.00±1.00" in narrow.getvalue()
    assert "0.1" not in narrow.getvalue()
    assert "not shown in 50 columns: F_T" in narrow.getvalue()
    assert "+0.012" in wide.getvalue()


def test_a_name_with_brackets_is_measured_as_text(monkeypatch):
    monkeypatch.setattr("tests.report.test_fitting.ROWS", [["[/]", "1.00", "-", "1", "5"]])
    assert "[/]" in printed(80, monkeypatch)
