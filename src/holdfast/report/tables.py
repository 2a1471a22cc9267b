"""A table of the paper with our numbers beside, as plain data."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import numpy as np

from holdfast.experiments.differences import decided
from holdfast.experiments.results import Result, split_place
from holdfast.report.statistics import paired_t_test

SIGNIFICANT = 0.05

Word = Literal["reproduced", "above", "below"]


@dataclass(frozen=True)
class Printed:
    """A number as the paper prints it."""

    text: str
    mean: float
    std: float | None  # None: none is printed
    rounding: float  # half of the last printed digit


@dataclass(frozen=True)
class Verdict:
    """Our number against the paper's.

    Attributes:
        word: where our mean is; `reproduced` if it is as near the paper's as the spreads and the rounding allow.
        reasons: why the two must not be compared; none if they may.
        n_seeds: '2 of 5 seeds' where ours are fewer than the recipe has in full: a comparison, but a weaker one.
    """

    word: Word
    reasons: tuple[str, ...] = ()
    n_seeds: str = ""

    @property
    def short(self) -> str:
        return "not comparable" if self.reasons else self.word

    @property
    def remarks(self) -> tuple[str, ...]:
        """All that is to be said with it."""
        return (*self.reasons, self.n_seeds) if self.n_seeds else self.reasons


@dataclass(frozen=True)
class Run:
    """A stored result, and the file that holds it."""

    path: Path
    result: Result

    @property
    def seed(self) -> int:
        return self.result.experiment.seed

    def address(self, base: Path) -> str:
        """Return the address of its file from the folder `base`, as a link has it."""
        file, digest = split_place(self.path)
        of_file = quote(os.fsencode(os.path.relpath(file, base)))  # a name need not be text
        return f"{of_file}#{digest}" if digest else of_file

    @cached_property
    def decided(self) -> dict[str, str]:
        """The settings that decided its numbers, by name."""
        return decided(self.result.experiment)

    @property
    def versions(self) -> str:
        return ", ".join(f"{name} {number}" for name, number in self.result.versions.items())


@dataclass(frozen=True)
class Column:
    """Column of a table; `better` is None where numbers do not compete."""

    title: str
    digits: int = 0
    better: Literal["more", "less"] | None = None
    is_printed: bool = True  # in the paper


@dataclass(frozen=True)
class Cell:
    """Our values by seed, in the column's unit, and what the paper prints there.

    Attributes:
        departures: what the runs have otherwise than the size that was asked for.
        best: whether it is the best of its column, beyond the noise.
    """

    values: dict[int, float]
    runs: tuple[Run, ...] = ()
    paper: Printed | None = None
    paper_text: str = ""  # where the paper prints no number
    departures: tuple[str, ...] = ()
    verdict: Verdict | None = None
    best: bool = False

    @property
    def mean(self) -> float | None:
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def std(self) -> float | None:
        """Over seeds, of the population (ddof 0)."""
        return float(np.std(list(self.values.values()))) if self.values else None

    @property
    def difference(self) -> float | None:
        return None if self.mean is None or self.paper is None else self.mean - self.paper.mean


@dataclass(frozen=True)
class Row:
    """A line: the paper's label, or that of a row of ours which the paper has not."""

    label: str
    name: str  # in our recipe
    cells: tuple[Cell, ...]
    is_bound: bool = False  # competes with no one
    is_again: bool = False  # the paper's numbers stand in the row above, too
    n_tuning: int | None = None  # tuning runs of its method


@dataclass(frozen=True)
class Table:
    """Table with `notes` to read first and lines to read `below`."""

    id: str
    title: str
    named: str  # what the labels are
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    below: tuple[str, ...] = ()


def parse_printed(text: str) -> Printed | None:
    """Return the number in '72.47±2.34' or '72.47'; None if it is none."""
    match = re.fullmatch(r"(\d+(?:\.(\d+))?)(?:±(\d+(?:\.\d+)?))?", text)
    if match is None:
        return None
    mean, decimals, std = match.groups()
    rounding = 0.5 * 10.0 ** -len(decimals or "")
    return Printed(text, float(mean), None if std is None else float(std), rounding)


def judge(values: dict[int, float], paper: Printed, reasons: tuple[str, ...] = (), *, n_full: int = 0) -> Verdict:
    """Reproduced if |our mean - the paper's| ≤ our deviation + the paper's + half of the paper's last printed digit.

    Deviations are of the population over seeds; the paper's is 0 where it prints none, ours with one seed.

    Args:
        reasons: why the two must not be compared, if so.
        n_full: how many seeds there are in full.
    """
    ours = list(values.values())
    difference = float(np.mean(ours)) - paper.mean
    allowed = float(np.std(ours)) + (paper.std or 0.0) + paper.rounding
    allowed += 1e-9 * max(1.0, abs(paper.mean))  # a difference that is the allowed one, but for the last bits
    word: Word = "reproduced" if abs(difference) <= allowed else "above" if difference > 0 else "below"
    return Verdict(word, reasons, f"{len(ours)} of {n_full} seeds" if len(ours) < n_full else "")


def with_best(table: Table) -> Table:
    """Return the table with the best cell of each column marked, where it beats the runner-up beyond the noise.

    That is a paired t-test over the seeds that both have, at least two, with p < 0.05. Bounds do not compete, nor do
    cells whose runs depart from the size of the table.
    """
    winners = {(i, row) for i in range(len(table.columns)) if (row := _winner(table, i)) is not None}
    return replace(
        table,
        rows=tuple(
            replace(row, cells=tuple(replace(cell, best=(i, r) in winners) for i, cell in enumerate(row.cells)))
            for r, row in enumerate(table.rows)
        ),
    )


def _winner(table: Table, column: int) -> int | None:
    """Return the number of the row that is best in a column, if it is beyond the noise."""
    better = table.columns[column].better
    cells = {r: row.cells[column] for r, row in enumerate(table.rows) if not row.is_bound}
    means = {r: cell.mean for r, cell in cells.items() if cell.mean is not None and not cell.departures}
    if better is None or len(means) < 2:
        return None
    sign = -1 if better == "more" else 1
    first, second, *_ = sorted(means, key=lambda r: sign * means[r])
    ours, theirs = cells[first].values, cells[second].values
    shared = sorted(ours.keys() & theirs.keys())
    mine, others = [ours[seed] for seed in shared], [theirs[seed] for seed in shared]
    # Over the shared seeds the order may be another than over all.
    if len(shared) < 2 or sign * (np.mean(mine) - np.mean(others)) >= 0:
        return None
    return first if paired_t_test(mine, others) < SIGNIFICANT else None
