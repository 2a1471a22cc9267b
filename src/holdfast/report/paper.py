"""The paper's tables, filled with stored results."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.experiments.differences import between_rows, decided, described, differences, joined
from holdfast.experiments.equivalent import MARK, NONE_KNOWN, Equivalences, code_marks
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.recipes import Recipe, Size, load_recipe
from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.tables import COLUMNS, measured
from holdfast.parts import Unknown, check_name
from holdfast.report.recorded import has_record
from holdfast.report.tables import Cell, Column, Row, Run, Table, judge, parse_printed, with_best

BETTER: dict[str, Literal["more", "less"]] = {
    "average_accuracy": "more",
    "forgetting": "less",
    "long_term_remembering": "less",
}
TUNING = (
    "Tuning runs are those of the row's method on the benchmark's tuning tasks, whatever row and settings they had."
)
ACCURACY = "A_T (%)"
ANOTHER_MACHINE = "timed on another machine than the paper's RTX 3090 Ti"


class PaperTable(BaseModel):
    """A table as a file of `papers` has it; drr.toml explains the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    title: str
    label: str  # in the paper's LaTeX
    recipe: str = ""
    named: str = "method"
    columns: list[str]
    bounds: list[str] = Field(default_factory=list)
    accuracy: dict[str, str] = Field(default_factory=dict)
    milliseconds: dict[str, str] = Field(default_factory=dict)
    megabytes: dict[str, str] = Field(default_factory=dict)
    departure: str = ""
    departures: dict[str, str] = Field(default_factory=dict)
    note: str = ""
    literal: dict[str, str] = Field(default_factory=dict)
    rows: list[list[str]]

    @property
    def recipes(self) -> list[str]:
        """Names of the recipes that its numbers come from."""
        return [self.recipe] if self.recipe else [*self.accuracy.values(), *self.milliseconds.values()]

    @property
    def titles(self) -> list[str]:
        """Return the titles of its columns and of the columns that we add."""
        return [*self.columns, *self.megabytes]


class Publication(BaseModel):
    """A paper whose numbers stand in a file of `papers`.

    Attributes:
        source: a reference that leads to the paper, and how its numbers were read where that was not in its tables.
        figures: see `report.figures`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    source: str
    tables: list[PaperTable]
    figures: list[dict[str, Any]] = Field(default_factory=list)


DRR = "drr"  # the file of the paper that this library is built around


@cache
def publications() -> dict[str, Publication]:
    """Read all papers by the name of their file, DRR's first."""
    files = sorted((Path(__file__).parent / "papers").glob("*.toml"), key=lambda path: (path.stem != DRR, path.stem))
    return {path.stem: Publication.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))) for path in files}


@cache
def paper_tables() -> dict[str, PaperTable]:
    """Give the tables of DRR's paper by id, in its order."""
    return {table.id: table for table in publications()[DRR].tables}


@cache
def all_tables() -> dict[str, PaperTable]:
    """Give the tables of all papers by id."""
    return {table.id: table for publication in publications().values() for table in publication.tables}


def chosen_tables(name: str) -> list[PaperTable]:
    """Give the table of an id, or for `all` those of DRR's paper."""
    if name == "all":
        return list(paper_tables().values())
    check_name(name, [*all_tables(), "all"], among="the papers' tables")
    return [all_tables()[name]]


def stored_runs(folders: Iterable[Path]) -> list[Run]:
    """Return the runs in folders, each experiment once: the first that has a record beside it, else the first.

    What cannot be read is named in a warning and passed over.
    """
    runs: dict[str, Run] = {}
    for folder in folders:
        if not folder.is_dir():
            warnings.warn(f"no folder of results at {folder}", stacklevel=2)
            continue
        for path, result in ResultStore(folder).results_by_path().items():
            try:
                result.metrics  # noqa: B018  a matrix that is none raises
            except ValueError as error:
                warnings.warn(f"{path} is no result of a run: {error}", stacklevel=2)
                continue
            run = Run(path, result)
            known = runs.setdefault(result.experiment.digest, run)
            if has_record(run) and not has_record(known):
                runs[result.experiment.digest] = run
    return list(runs.values())


def make_table(paper: PaperTable, runs: list[Run], size: Size, same: Equivalences = NONE_KNOWN) -> Table:
    """Return a table of the paper with the numbers of `runs` beside; `Source.best_runs` chooses them.

    A row whose seeds are of different code, but for what is the `same`, is marked.
    """
    sources = {name: Source.load(name, size) for name in paper.recipes}
    measures = [_measure(paper, title) for title in paper.titles]
    n_tuning = _tuning_runs(paper, sources, runs)
    rows = [
        Row(
            label,
            name,
            _cells(paper, measures, sources, name, runs, printed),
            is_bound=name in paper.bounds,
            is_again=name in paper.literal,
            n_tuning=n_tuning(name),
        )
        for label, name, *printed in all_rows(paper, sources)
    ]
    marked, of_code = _code_notes(rows, same)
    rows = [replace(row, label=f"{row.label} {MARK}") if row.label in marked else row for row in rows]
    notes = [note for source in sources.values() for note in source.size_notes(size)]
    notes += _seeds_note(rows, sources)
    if paper.departure:
        notes.append(f"Not the paper's setup: {paper.departure}.")
    if paper.note:
        notes.append(f"Not as in the paper: {paper.note}.")
    notes += dict.fromkeys(
        f"† {row.label}: {', '.join(cell.departures)}." for row in rows for cell in row.cells if cell.departures
    )
    notes += of_code
    below = _unlike(rows) if paper.recipe else []
    below += [f"{row.label} departs: {paper.departures[row.name]}" for row in rows if row.name in paper.departures]
    if any(row.n_tuning is not None for row in rows):
        below.append(TUNING)
    columns = tuple(measure.column for measure in measures)
    return with_best(Table(paper.id, paper.title, paper.named, columns, tuple(rows), tuple(notes), tuple(below)))


def _code_notes(rows: list[Row], same: Equivalences) -> tuple[set[str], list[str]]:
    """Return the labels of rows whose seeds are of different code, and notes on which differ.

    A row may have runs of several benchmarks, whose code differs anyway: each has its own seeds.
    """
    marked: set[str] = set()
    notes: list[str] = []
    for row in rows:
        of_kind: dict[str, dict[int, Result]] = {}
        for run in (run for cell in row.cells for run in cell.runs):
            of_kind.setdefault(run.result.experiment.kind, {})[run.seed] = run.result
        for results in of_kind.values():
            labels, told = code_marks([(row.label, list(results.values()))], same)
            # Code that is recorded of no seed is told by `show`, of each run.
            notes += told if labels or any(same.code(result) for result in results.values()) else []
            marked |= labels
    return marked, list(dict.fromkeys(notes))


def _unlike(rows: list[Row]) -> list[str]:
    """Return the differences between the settings of the rows."""
    runs = {row.label: [run for cell in row.cells for run in cell.runs] for row in rows}
    return between_rows({label: [found[0].result.experiment] for label, found in runs.items() if found})


def _seeds_note(rows: list[Row], sources: dict[str, Source]) -> list[str]:
    """Return a note on the number of seeds, if some rows have fewer than in full."""
    counts = {len(cell.values) for row in rows for cell in row.cells if cell.values}
    full = max((source.full.seeds for source in sources.values()), key=len)
    if not counts or min(counts) == len(full):
        return []
    few = str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    are = "seed" if few == "1" else "seeds"
    return [f"Rows have {few} {are}, as their last columns say, where in full they have {len(full)}: {_listed(full)}."]


def _tuning_runs(paper: PaperTable, sources: dict[str, Source], runs: list[Run]) -> Callable[[str], int | None]:
    """Return the number of tuning runs of the method, by row; None if there is no tuning run at all."""
    benchmarks = {recipe.name for source in sources.values() for recipe in (source.full, source.sized)}
    tuning = [run.result.experiment for run in runs if joined(run.result.experiment).options.get("tasks") == "tuning"]
    here = [experiment for experiment in tuning if experiment.benchmark in benchmarks]

    def count(row: str) -> int | None:
        if not tuning:
            return None
        if row in paper.literal.values():  # whose values no run has decided
            return sum(experiment.row == row for experiment in here)
        found = (experiment_of(recipe, row) for source in sources.values() for recipe in (source.sized, source.full))
        methods = {experiment.method.name for experiment in found if experiment is not None}
        return sum(experiment.method.name in methods for experiment in here)

    return count


def missing_experiments(paper: PaperTable, runs: list[Run], size: Size) -> list[Experiment]:
    """Return the missing runs of a table in a size; a row that cannot run is named in a warning."""
    sources = {name: Source.load(name, size) for name in paper.recipes}
    rows = [name for _, name, *_ in all_rows(paper, sources)]
    return [experiment for source in sources.values() for experiment in source.missing(rows, runs)]


@dataclass(frozen=True)
class _Measure:
    """Measure of a column; without a recipe if the column has only the paper's text."""

    column: Column
    recipe: str
    value: Callable[[Result], float | None]
    reasons: tuple[str, ...] = ()  # why it can never be held against the paper's


def _measure(paper: PaperTable, title: str) -> _Measure:
    if title in paper.milliseconds:
        column, recipe = Column(title, digits=2), paper.milliseconds[title]
        return _Measure(column, recipe, lambda result: result.milliseconds_per_step, (ANOTHER_MACHINE,))
    if title in paper.accuracy:
        column = Column(title, digits=2, better="more")
        return _Measure(column, paper.accuracy[title], lambda result: measured(result, ACCURACY))
    if title in paper.megabytes:
        column = Column(title, digits=1, is_printed=False)
        return _Measure(column, paper.megabytes[title], lambda result: result.megabytes)
    if title not in COLUMNS:
        return _Measure(Column(title), "", lambda _: None)
    metric, _, digits = COLUMNS[title]
    return _Measure(Column(title, digits, better=BETTER[metric]), paper.recipe, lambda result: measured(result, title))


@dataclass(frozen=True)
class Source:
    """A recipe in full and in the size that is asked for, which may be another recipe."""

    full: Recipe
    sized: Recipe

    @staticmethod
    def load(name: str, size: Size) -> Source:
        recipe = load_recipe(name)
        return Source(recipe.sized("full"), recipe.sized(size))

    @property
    def rows(self) -> list[str]:
        """Names of the rows in either size, in their order."""
        return list({**self.full.rows, **self.sized.rows})

    def best_runs(self, row: str, runs: list[Run]) -> list[Run]:
        """Return the runs to show in a row: one configuration, the recipe's seeds, as near the asked size as there are.

        A run of the same settings under the name of another recipe counts too: DRR is a row of several tables. Runs
        that differ in more than the seed are never averaged. Nearest is what departs in fewest settings, then what has
        most seeds. Runs on other tasks than the recipe's in either size, or on fewer of their samples, do not
        count: their A_T is another quantity.
        """
        twins = [decided(each) for size in (self.full, self.sized) if (each := experiment_of(size, row))]
        streams = [_of_stream(settings) for settings in twins]
        groups: dict[str, list[Run]] = {}
        for run in runs:
            experiment = run.result.experiment
            named_so = experiment.row == row and experiment.benchmark in (self.full.name, self.sized.name)
            if not named_so and run.decided not in twins:
                continue
            if experiment.seed not in self.full.seeds:
                continue
            if streams and _of_stream(run.decided) not in streams:
                continue
            groups.setdefault(experiment.kind, []).append(run)
        if not groups:
            return []

        def distance(digest: str) -> tuple[int, int, str]:
            group = groups[digest]
            return len(departures(self.sized, row, group[0])), -len(group), digest

        return sorted(groups[min(groups, key=distance)], key=lambda run: run.seed)

    def missing(self, rows: Iterable[str], runs: list[Run]) -> list[Experiment]:
        """Return the runs of `rows` missing from `runs`, with the seeds of the size; warn of rows that cannot run."""
        name = self.full.name
        runnable = []
        for row in rows:
            if row not in self.sized.rows:
                warnings.warn(f"the recipe '{name}' has no row '{row}', so none is run", stacklevel=3)
            elif experiment_of(self.sized, row) is None:
                warnings.warn(f"the row '{row}' of '{name}' needs what is not there, so none is run", stacklevel=3)
            else:
                runnable.append(row)
        done = [(run.seed, run.decided) for run in runs]
        wanted = [self.sized.experiment(row, seed=seed) for seed in self.sized.seeds for row in runnable]
        return [experiment for experiment in wanted if (experiment.seed, decided(experiment)) not in done]

    def size_notes(self, size: Size) -> list[str]:
        """Return a sentence on the changes of the size, if any; each change names its rows, unless it is in all."""
        rows_by_change: dict[str, list[str]] = {}
        n_rows = 0
        for row in self.full.rows:
            full, sized = experiment_of(self.full, row), experiment_of(self.sized, row)
            if full is None or sized is None:
                continue
            n_rows += 1
            for change in differences(sized, full).items():
                rows_by_change.setdefault(described(change), []).append(row)
        changes = [
            change if len(rows) == n_rows else f"{change} ({', '.join(rows)})"
            for change, rows in rows_by_change.items()
        ]
        return [f"{self.full.name} in size {size}: {'; '.join(changes)}."] if changes else []


def experiment_of(recipe: Recipe, row: str) -> Experiment | None:
    """Return the experiment of a row; None where the recipe has no such row, or it needs what is not there."""
    try:
        return recipe.experiment(row) if row in recipe.rows else None
    except Unknown:
        return None


def departures(recipe: Recipe, row: str, run: Run) -> tuple[str, ...]:
    """Return the differences of a run from a row of the recipe, in words."""
    expected = experiment_of(recipe, row)
    if expected is None:
        return (f"the recipe '{recipe.name}' has no row '{row}'",)
    return tuple(described(change) for change in differences(run.result.experiment, expected).items())


def _of_stream(settings: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name.partition(".")[0] == "stream"}


def all_rows(paper: PaperTable, sources: dict[str, Source]) -> list[list[str]]:
    """Return the paper's rows, then those of our recipe that it lacks; over several recipes, only the paper's.

    A row with values of our own stands below the one that has the paper's.
    """
    rows = []
    for label, name, *printed in paper.rows:
        if name in paper.literal:
            method = label.removesuffix(" (Ours)")
            rows.append([f"{method}, the paper's values", paper.literal[name], *printed])
            label = f"{method}, as tuned here"
        rows.append([label, name, *printed])
    known = {name for _, name, *_ in rows}
    own = paper.recipe or next(iter(paper.accuracy.values()), "")
    ours = sources[own].rows if own else []
    return rows + [[name, name, *["-"] * len(paper.columns)] for name in ours if name not in known]


def _cells(
    paper: PaperTable,
    measures: list[_Measure],
    sources: dict[str, Source],
    row: str,
    runs: list[Run],
    printed: list[str],
) -> tuple[Cell, ...]:
    found = {name: source.best_runs(row, runs) for name, source in sources.items()}
    printed = [*printed, *["-"] * len(paper.megabytes)]
    reasons = [reason for reason in (paper.departure, paper.departures.get(row)) if reason]
    return tuple(
        _cell(measure, sources.get(measure.recipe), row, found.get(measure.recipe, []), text, reasons)
        for measure, text in zip(measures, printed, strict=True)
    )


def _cell(measure: _Measure, source: Source | None, row: str, found: list[Run], text: str, reasons: list[str]) -> Cell:
    """Return a column's value of the runs that were found for the row, beside the `text` that the paper prints."""
    printed = parse_printed(text)
    paper_text = "" if printed or text == "-" else text
    by_seed = {run.seed: value for run in found if (value := measure.value(run.result)) is not None}
    if not by_seed or source is None:
        return Cell({}, paper=printed, paper_text=paper_text)
    reasons = [*reasons, *measure.reasons, *departures(source.full, row, found[0])]
    return Cell(
        values=by_seed,
        runs=tuple(run for run in found if run.seed in by_seed),
        paper=printed,
        paper_text=paper_text,
        departures=departures(source.sized, row, found[0]),
        verdict=judge(by_seed, printed, tuple(reasons), n_full=len(source.full.seeds)) if printed else None,
    )


def _listed(seeds: tuple[int, ...]) -> str:
    first, last = seeds[0], seeds[-1]
    return (
        f"{first}-{last}" if len(seeds) > 2 and seeds == tuple(range(first, last + 1)) else ", ".join(map(str, seeds))
    )
