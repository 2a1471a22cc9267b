"""The paper's figures, as plain data from stored results."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from holdfast.experiments.experiment import Experiment
from holdfast.experiments.metrics import average_accuracy
from holdfast.experiments.probes.record import Record
from holdfast.experiments.recipes import Size
from holdfast.experiments.results import Result
from holdfast.experiments.tables import measured
from holdfast.report.drift_map import NO_MAP, drift_map
from holdfast.report.paper import DRR, PaperTable, Source, departures, experiment_of, paper_tables, publications
from holdfast.report.recorded import first_record, has_record
from holdfast.report.tables import Cell, Column, Row, Run, Table

Kind = Literal["learned", "trend", "drift"]
Measure = Callable[[Result], float | None]


class PaperFigure(BaseModel):
    """A figure as a file of `papers` has it; drr.toml explains the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    title: str
    label: str  # in the paper's LaTeX
    kind: Kind
    recipes: list[str] = Field(min_length=1)
    rows: list[str] = Field(default_factory=list)
    after: list[int] = Field(default_factory=list)

    @property
    def needs_records(self) -> bool:
        return self.kind == "drift"


@dataclass(frozen=True, eq=False)
class MethodMap:
    """Positions of samples of task 1 on the drift map of one run.

    Attributes:
        tasks: after which it is seen, counted from 1.
        moved: how far the samples then are from where they were; None where that is not known.
        places: (tasks, n, 2).
        y: (n,) their classes.
    """

    row: str
    label: str
    seed: int
    tasks: tuple[int, ...]
    moved: tuple[float | None, ...]
    places: NDArray[np.float64]
    y: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Figure:
    """The numbers behind a figure, of the methods that were run; notes on how they came about are with the tables.

    Attributes:
        tables: one, or of a trend one for each benchmark.
        after: of drift, the tasks after which it is seen, counted from 1.
        methods: rows of all figures, whose place here decides how each looks in every one of them.
        maps: of drift, once they were asked for; see `with_maps`.
    """

    id: str
    title: str
    kind: Kind
    tables: tuple[Table, ...]
    methods: tuple[str, ...]
    after: tuple[int, ...] = ()
    maps: tuple[MethodMap, ...] = ()
    map_notes: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([note for table in self.tables for note in table.notes] + list(self.map_notes)))


@cache
def paper_figures() -> dict[str, PaperFigure]:
    """Return the paper's figures by id, in its order."""
    return {figure["id"]: PaperFigure.model_validate(figure) for figure in publications()[DRR].figures}


def make_figure(paper: PaperFigure, runs: list[Run], size: Size) -> Figure:
    """Return a figure of the paper from `runs`; as in a table, `Source.best_runs` says which of them."""
    printed = _printed_labels()
    labels = printed | {row: row for name in _recipes() for row in Source.load(name, size).rows if row not in printed}
    benchmarks = [_benchmark(name, paper, runs, size, labels) for name in paper.recipes]
    makers = {"learned": _learned, "trend": _trends, "drift": _drift}
    tables = makers[paper.kind](paper, benchmarks, labels)
    # The paper's own method stands last in its tables, and its look should be the plainest.
    methods = (*reversed(printed), *(row for row in labels if row not in printed))
    return Figure(paper.id, paper.title, paper.kind, tables, methods, _after(paper, benchmarks))


def missing_for_figure(paper: PaperFigure, runs: list[Run], size: Size) -> list[Experiment]:
    """Return the missing runs of a figure in a size. If the figure needs records, a run without one is missing."""
    usable = [run for run in runs if has_record(run)] if paper.needs_records else runs
    sources = [Source.load(name, size) for name in paper.recipes]
    return [experiment for source in sources for experiment in source.missing(_rows(paper, source), usable)]


def with_maps(figure: Figure) -> Figure:
    """Return the figure with its drift maps, which take seconds each; a figure of another kind stays as it is.

    A map is of the first run of a row that left a record. What cannot be read is named in a warning and passed over.

    Raises:
        ValueError: if there is nothing to draw; the message says why.
    """
    if not any(table.rows for table in figure.tables):
        raise ValueError(f"no run for {figure.id} is stored, so there is nothing to draw: --run runs what is missing")
    if figure.kind != "drift":
        return figure
    (table,) = figure.tables
    maps, notes = [], []
    for row in table.rows:
        problems: list[str] = []
        runs = list({run.path: run for cell in row.cells for run in cell.runs}.values())
        found = first_record(runs, problems)
        for problem in problems:
            warnings.warn(problem, stacklevel=2)
        try:
            drawn = None if found is None else _map(row, *found, figure.after)
        except ImportError:
            raise ValueError(NO_MAP) from None
        if drawn is None:
            notes.append(f"{row.label}: {'no record is stored' if found is None else 'its record makes no map'}.")
        else:
            maps.append(drawn)
    if not maps:
        raise ValueError(
            f"no run for {figure.id} has a record that a map can be made of: holdfast run --record leaves one"
        )
    seeds = ", ".join(map(str, sorted({drawn.seed for drawn in maps})))
    notes.append(
        f"One run a method (seed {seeds}). A map is a t-SNE of the features when task 1 had just been learned; later "
        "features of the same samples are placed into it. Moved: how far, in units of their spread then."
    )
    return replace(figure, maps=tuple(maps), map_notes=tuple(notes))


@dataclass(frozen=True)
class _Benchmark:
    """Runs found for a recipe, by row."""

    name: str
    title: str
    source: Source
    runs: dict[str, list[Run]]
    notes: tuple[str, ...]

    @property
    def n_tasks(self) -> int:
        """Largest number of tasks that were learned."""
        return max((len(run.result.accuracies) for group in self.runs.values() for run in group), default=0)

    def cell(self, row: str, value: Measure) -> Cell:
        found = self.runs.get(row, [])
        by_seed = {run.seed: number for run in found if (number := value(run.result)) is not None}
        if not by_seed:
            return Cell({})
        kept = tuple(run for run in found if run.seed in by_seed)
        return Cell(by_seed, kept, departures=departures(self.source.sized, row, found[0]))


def _benchmark(name: str, paper: PaperFigure, runs: list[Run], size: Size, labels: dict[str, str]) -> _Benchmark:
    source, table = Source.load(name, size), _table_of(name)
    rows = sorted(_rows(paper, source), key=list(labels).index)
    found = {row: group for row in rows if (group := source.best_runs(row, runs))}
    if not found:
        return _Benchmark(name, table.title, source, {}, (f"{name}: no run is stored.",))
    notes = source.size_notes(size)
    if table.departure:
        notes.append(f"{name} is not the paper's setup: {table.departure}.")
    for row, group in found.items():
        if changes := departures(source.sized, row, group[0]):
            notes.append(f"† {labels[row]} on {name}: {', '.join(changes)}.")
    if absent := [labels[row] for row in rows if row not in found]:
        notes.append(f"{name}, not run: {', '.join(absent)}.")
    return _Benchmark(name, table.title, source, found, tuple(notes))


def _learned(paper: PaperFigure, benchmarks: list[_Benchmark], labels: dict[str, str]) -> tuple[Table, ...]:
    value = partial(measured, column="learned (%)")
    columns = tuple(Column(benchmark.title, digits=2) for benchmark in benchmarks)
    cells = {row: [benchmark.cell(row, value) for benchmark in benchmarks] for row in labels}
    return (_table(paper.id, f"{paper.title} (%)", columns, cells, benchmarks, labels),)


def _trends(paper: PaperFigure, benchmarks: list[_Benchmark], labels: dict[str, str]) -> tuple[Table, ...]:
    return tuple(_trend(paper, benchmark, labels) for benchmark in benchmarks)


def _trend(paper: PaperFigure, benchmark: _Benchmark, labels: dict[str, str]) -> Table:
    places = range(benchmark.n_tasks)
    columns = tuple(Column(f"A_{t + 1} (%)", digits=1) for t in places)
    cells = {row: [benchmark.cell(row, partial(_average, t=t)) for t in places] for row in benchmark.runs}
    name = f"{paper.id}/{benchmark.name}"
    return _table(name, benchmark.title, columns, cells, [benchmark], labels)


def _drift(paper: PaperFigure, benchmarks: list[_Benchmark], labels: dict[str, str]) -> tuple[Table, ...]:
    (benchmark,) = benchmarks
    tasks = _after(paper, benchmarks)
    columns = tuple(Column(f"after task {task}", digits=2) for task in tasks)
    cells = {row: [benchmark.cell(row, partial(_first_moved, task=task)) for task in tasks] for row in benchmark.runs}
    title = f"{paper.title}: how far they moved, in units of their spread"
    return (_table(paper.id, title, columns, cells, benchmarks, labels),)


def _table(
    name: str,
    title: str,
    columns: tuple[Column, ...],
    cells: dict[str, list[Cell]],
    benchmarks: list[_Benchmark],
    labels: dict[str, str],
) -> Table:
    """Return a table of the rows that have a number; rows that were run without a number are named in its notes."""
    rows = tuple(Row(labels[row], row, tuple(each)) for row, each in cells.items() if any(c.values for c in each))
    notes = [note for benchmark in benchmarks for note in benchmark.notes]
    shown = {row.name for row in rows}
    if bare := [labels[row] for row in labels if any(row in b.runs for b in benchmarks) and row not in shown]:
        notes.append(f"Run, but without these numbers: {', '.join(bare)}.")
    return Table(name, title, "method", columns, rows, tuple(notes))


def _average(result: Result, t: int) -> float | None:
    """Return A_t in per cent, t counted from 0; None of tasks that were not learned in turn."""
    matrix = result.matrix
    if matrix.shape[0] != matrix.shape[1] or t >= len(matrix):
        return None
    return 100 * average_accuracy(matrix, t)


def _first_moved(result: Result, task: int) -> float | None:
    """Return the distance of task 1 from its first position, after a task counted from 1."""
    if not result.drift_fits or task > len(result.moved):
        return None
    distance = result.moved[task - 1][0]
    return distance if math.isfinite(distance) else None


def _after(paper: PaperFigure, benchmarks: list[_Benchmark]) -> tuple[int, ...]:
    """Return the tasks that the figure is seen after: the first, the middle and the last if fewer were learned."""
    n_tasks = max(benchmark.n_tasks for benchmark in benchmarks)
    if n_tasks < max(paper.after, default=0):
        return tuple(sorted({1, (n_tasks + 1) // 2, n_tasks} - {0}))
    return tuple(paper.after)


def _map(row: Row, run: Run, record: Record, tasks: tuple[int, ...]) -> MethodMap | None:
    """Return the map of what a run has recorded; None where there is none to make."""
    if record.features is None:
        return None
    features = record.features.numpy()
    seen = [task for task in tasks if task <= len(features)]
    places = drift_map(features[[task - 1 for task in seen]])
    if places is None:
        return None
    moved = tuple(_first_moved(run.result, task) for task in seen)
    return MethodMap(row.name, row.label, run.seed, tuple(seen), moved, places, record.y.numpy())


def _rows(paper: PaperFigure, source: Source) -> list[str]:
    """Return the rows of the table of a recipe, or those that the figure is limited to.

    Those that learn all tasks at once are none of a figure: they have no accuracy before the last task.
    """
    name = source.full.name
    rows = paper.rows or dict.fromkeys([*(row for _, row, *_ in _table_of(name).rows), *source.rows])
    return [row for row in rows if (each := experiment_of(source.full, row)) is None or each.stream.name != "joint"]


def _recipes() -> list[str]:
    """Return the recipes of all figures."""
    return list(dict.fromkeys(name for figure in paper_figures().values() for name in figure.recipes))


def _printed_labels() -> dict[str, str]:
    """Return the labels of the paper's tables for the rows of all figures, in their order."""
    printed: list[tuple[str, str]] = []
    for name in _recipes():
        place = 0
        for label, row, *_ in _table_of(name).rows:
            known = [i for i, (other, _) in enumerate(printed) if other == row]
            place = known[0] if known else place
            if not known:  # a row that earlier tables have not comes after what it follows in its own
                printed.insert(place, (row, label))
            place += 1
    return dict(printed)


def _table_of(recipe: str) -> PaperTable:
    return next(table for table in paper_tables().values() if table.recipe == recipe)
