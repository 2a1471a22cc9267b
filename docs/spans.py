"""Fill the numbers in prose from the stored results.

A number in a page stands in a span that says where it comes from:

    <!--= permuted_mnist/drr A_T -->95.08±0.07<!--/-->

| source | measures |
|---|---|
| `FOLDER/ROW [setting=value …] [seed=1234 or seed=1234-1236]`: stored runs below results/ | `A_T`, `F_T`, `LTR`, `learned`, `A_7`, `A_4..A_12` (mean of both and all between), `seeds`, `rows`, `MB.samples` and other terms of the footprint |
| `paper/TABLE/ROW`: a number that the paper prints | the columns of the table, as `A_T` |
| `figure-tsne/ROW`: how far the features of task 1 moved | `drift` |
| `verdicts/TABLE` or `verdicts/all` | `reproduced`, `above`, `below`, `not_comparable`, `not_run`, `all` |
| `FILE.md ROW`: a table in results/ | its columns |
| `FILE /PATTERN/`: the one group of a pattern in results/ or the root of the repository | |

Before a source, `min` or `max` chooses among the rows that match (`epsilon_*`, or `ewc,mas`), or among the runs of one row.
`A - B` is a difference of means. A last word `.1` sets the number of decimals.
"""  # noqa: E501  rows of a table

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import numpy as np

from holdfast.experiments.differences import decided
from holdfast.experiments.metrics import average_accuracy
from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.tables import COLUMNS, mean_and_spread, measured
from holdfast.report.figures import make_figure, paper_figures
from holdfast.report.page import counted
from holdfast.report.paper import make_table, paper_tables, stored_runs
from holdfast.report.tables import Run, Table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
SPAN = re.compile(r"<!--= (?P<source>.+?) -->(?P<text>.*?)<!--/-->", re.DOTALL)
_BY_SHORT_NAME = {name.split()[0]: name for name in COLUMNS}
_WAY = re.compile(r"A_(\d+)(?:\.\.A_(\d+))?")


@dataclass(frozen=True)
class Told:
    """Values of one source.

    Attributes:
        groups: the values that are averaged, one group for each matching row.
        digits: decimals, unless the span states another number.
        text: shown as it is, if the source is text.
    """

    groups: list[list[float]]
    digits: int
    text: str = ""


def filled(page: str) -> str:
    """Return the text of a page with the present value in every span."""
    return SPAN.sub(lambda span: f"<!--= {span['source']} -->{value_of(span['source'])}<!--/-->", page)


def value_of(source: str) -> str:
    """Return the text that a span with this source shows."""
    *words, last = source.split(" ")
    digits = int(last[1:]) if re.fullmatch(r"\.\d", last) else None
    terms = (source if digits is None else " ".join(words)).split(" - ")
    try:
        chosen, told = zip(*(_term(term) for term in terms), strict=True)
    except ValueError as error:
        raise ValueError(f"<!--= {source} -->: {error}") from error
    digits = told[0].digits if digits is None else digits
    if len(terms) == 1 and not chosen[0]:
        (group,) = told[0].groups or [[]]
        return told[0].text or mean_and_spread(group, 1, digits)
    first, *others = (_number(choice, found) for choice, found in zip(chosen, told, strict=True))
    return f"{first - sum(others):.{digits}f}"


def _term(term: str) -> tuple[str, Told]:
    choice, _, rest = term.partition(" ") if term.startswith(("min ", "max ")) else ("", "", term)
    if " /" in rest:
        return choice, _of_pattern(rest)
    source, *conditions, measure = shlex.split(rest)
    kind = source.partition("/")[0]
    if source.endswith(".md"):
        return choice, _of_table(source, " ".join(conditions), measure)
    readers: dict[str, Callable[[str, str], Told]] = {"paper": _printed, "figure-tsne": _drift, "verdicts": _verdicts}
    if kind in readers:
        return choice, readers[kind](source, measure)
    return choice, _of_runs(source, conditions, measure)


def _number(choice: str, told: Told) -> float:
    """Return the one number of a term: the least or greatest mean, or the mean."""
    groups = told.groups if len(told.groups) > 1 else [[value] for value in told.groups[0]]
    means = [float(np.mean(group)) for group in groups]
    if choice:
        return {"min": min, "max": max}[choice](means)
    return float(np.mean(told.groups[0]))


def _of_runs(source: str, conditions: list[str], measure: str) -> Told:
    folder, _, row = source.rpartition("/")
    seeds = [_seeds(each) for each in conditions if each.startswith("seed=")]
    settings = {each for each in conditions if not each.startswith("seed=")}
    rows: dict[str, list[Result]] = {}
    for result, values in _stored(folder):
        experiment = result.experiment
        if (
            _matches(experiment.row, row)
            and settings <= values
            and all(experiment.seed in allowed for allowed in seeds)
        ):
            rows.setdefault(experiment.row, []).append(result)
    if not rows:
        raise ValueError(f"no stored run of '{row}' in '{folder}' has {' '.join(conditions) or 'any settings'}")
    if measure == "rows":
        return Told([], 0, ", ".join(f"`{name}`" for name in sorted(rows)))
    if measure == "seeds":
        return Told([[float(len(group))] for group in rows.values()], 0)
    digits = COLUMNS[_BY_SHORT_NAME[measure]][2] if measure in _BY_SHORT_NAME else 1
    return Told([[_measured(result, measure) for result in group] for group in rows.values()], digits)


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns.split(","))


@cache
def _stored(folder: str) -> list[tuple[Result, set[str]]]:
    """Return the runs of a folder by seed, each with the settings that decided it, as 'method.epsilon=0.01'."""
    results = sorted(ResultStore(RESULTS / folder).results(), key=lambda result: result.experiment.seed)
    return [(each, {f"{name}={value}" for name, value in decided(each.experiment).items()}) for each in results]


def _seeds(condition: str) -> range:
    first, _, last = condition.removeprefix("seed=").partition("-")
    return range(int(first), int(last or first) + 1)


def _measured(result: Result, measure: str) -> float:
    value: float | None
    if measure in _BY_SHORT_NAME:
        value = measured(result, _BY_SHORT_NAME[measure])
    elif way := _WAY.fullmatch(measure):
        first, last = int(way[1]), int(way[2] or way[1])
        value = 100 * float(np.mean([average_accuracy(result.accuracies, t) for t in range(first - 1, last)]))
    elif measure.startswith("MB.") and result.footprint is not None:
        value = getattr(result.footprint, measure.removeprefix("MB.")) / 1e6
    else:
        raise ValueError(f"no measure '{measure}' of a run")
    if value is None:
        raise ValueError(f"a run of '{result.experiment.row}' has no {measure}")
    return value


def _printed(source: str, measure: str) -> Told:
    _, table, row = source.split("/")
    paper = paper_tables()[table]
    column = [title.split()[0] for title in paper.columns].index(measure)
    cells = [cells[column] for _, name, *cells in paper.rows if _matches(name, row)]
    if not cells:
        raise ValueError(f"the paper's {table} has no row '{row}'")
    return Told([[float(cell.split("±")[0])] for cell in cells], 2, cells[0] if len(cells) == 1 else "")


@cache
def stored() -> list[Run]:
    """Return every stored run."""
    return stored_runs([RESULTS])


@cache
def tables() -> dict[str, Table]:
    """Return the tables of the paper by id, with the stored runs beside."""
    return {name: make_table(paper, stored(), "cpu") for name, paper in paper_tables().items()}


def _drift(source: str, measure: str) -> Told:
    if measure != "drift":
        raise ValueError(f"no measure '{measure}' of the figure: 'drift' is the one")
    (table,) = make_figure(paper_figures()["figure-tsne"], stored(), "cpu").tables
    (mean,) = [row.cells[-1].mean for row in table.rows if row.name == source.partition("/")[2]]
    if mean is None:
        raise ValueError("no run of this row has a record")
    return Told([[mean]], 2)


def _verdicts(source: str, measure: str) -> Told:
    table = source.partition("/")[2]
    found = [*tables().values()] if table == "all" else [tables()[table]]
    return Told([[float(counted(found)[measure.replace("_", " ")])]], 0)


def _of_table(source: str, row: str, measure: str) -> Told:
    lines = [line for line in (RESULTS / source).read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    (text,) = [cells[header.index(measure)] for cells in rows if cells[0] == row]
    return Told([[float(text)]], len(text.partition(".")[2]))


def _of_pattern(source: str) -> Told:
    name, _, pattern = source.partition(" /")
    path = next(folder / name for folder in (RESULTS, ROOT) if (folder / name).exists())
    (text,) = re.findall(pattern.removesuffix("/"), path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if re.fullmatch(r"-?\d+\.\d+", text):
        return Told([[float(text)]], len(text.partition(".")[2]))
    return Told([], 0, text)
