"""`holdfast paper`: the paper's tables and figures with our numbers, from stored results."""

from __future__ import annotations

import io
import shlex
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, cast

import typer
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table as RichTable

from holdfast.cli.options import ContinueAnyway, Data, Device, DryRun, OutFolder, Quiet, SizeName, Threads
from holdfast.cli.printing import console, printable
from holdfast.parts import Unknown, check_name
from holdfast.report.fitting import UNLIMITED

if TYPE_CHECKING:
    from holdfast.experiments.experiment import Experiment
    from holdfast.experiments.recipes import Size
    from holdfast.experiments.results import ResultStore
    from holdfast.experiments.run import How
    from holdfast.report.figures import Figure, PaperFigure
    from holdfast.report.paper import PaperTable
    from holdfast.report.rendering import Grid
    from holdfast.report.tables import Table

FORMATS = ["terminal", "csv", "html", "latex", "markdown", "svg"]  # svg of figures only


def paper_command(
    table: Annotated[
        str | None,
        typer.Argument(help="Id of a table or figure, or 'all' for all tables. Without it, they are listed."),
    ] = None,
    stored: Annotated[Path | None, typer.Option("--from", help="Read results here, not from --out.")] = None,
    out_folder: OutFolder = Path("runs"),
    size: SizeName = "cpu",
    style: Annotated[str, typer.Option("--format", help=", ".join(FORMATS) + " (figures only).")] = "terminal",
    to: Annotated[Path | None, typer.Option(help="Write into this file instead of printing.")] = None,
    only_verdicts: Annotated[
        bool, typer.Option("--verdicts", help="List each number with its verdict: reproduced, or why not.")
    ] = False,
    run: Annotated[bool, typer.Option("--run", help="Run what is missing first.")] = False,
    continue_anyway: ContinueAnyway = False,
    data: Data = None,
    device: Device = "cpu",
    threads: Threads = 1,
    workers: Annotated[int, typer.Option(min=1, help="Number of runs at once, in processes with one thread each.")] = 1,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Print the paper's tables and figures with our numbers; what was not run is a dash, or left out of a figure."""
    import torch

    from holdfast.build import usable_device
    from holdfast.experiments.equivalent import read_equivalences
    from holdfast.experiments.results import ResultStore
    from holdfast.experiments.run import How
    from holdfast.report.figures import make_figure, missing_for_figure, paper_figures
    from holdfast.report.paper import all_tables, chosen_tables, make_table, missing_experiments, stored_runs
    from holdfast.report.rendering import numbers, verdicts

    check_name(size, ["cpu", "full"], among="the sizes of a table")
    check_name(style, FORMATS, among="the formats of a table")
    if table is None and not only_verdicts:
        _list()
        return
    check_name(table or "all", [*all_tables(), *paper_figures(), "all"], among="the papers' tables and figures")
    figure, sized = paper_figures().get(table or "all"), cast("Size", size)
    chosen = [] if figure else chosen_tables(table or "all")
    if figure is None and style == "svg":
        raise Unknown(f"tables have no picture: --format svg is of {', '.join(paper_figures())}")
    if figure is not None and only_verdicts:
        raise Unknown(f"the paper prints no numbers of {figure.id}, so there are no --verdicts of it")
    folders = [folder for folder in (stored, out_folder if run or stored is None else None) if folder is not None]
    if dry_run:
        _plan(chosen, figure, folders, out_folder, sized, n_workers=workers)
        return
    all_ran = True
    if run:
        usable_device(device)
        torch.set_num_threads(threads)
        out_folder.mkdir(parents=True, exist_ok=True)
        quiet |= style != "terminal" and to is None  # a document is printed, and nothing else
        needs_records = figure is not None and figure.needs_records
        how = How(data=data, device=device, record=needs_records, continue_anyway=continue_anyway)
        run_each = partial(_run_each, store=ResultStore(out_folder), workers=workers, quiet=quiet, how=how)
        for each in chosen:
            all_ran &= run_each(missing_experiments(each, stored_runs(folders), sized))
        if figure:
            all_ran = run_each(missing_for_figure(figure, stored_runs(folders), sized))
    runs = stored_runs(folders)
    if figure:
        _give_figure(make_figure(figure, runs, sized), style, to)
    else:
        same = read_equivalences(folders)
        tables = [make_table(each, runs, sized, same) for each in chosen]
        grid_of = verdicts if only_verdicts else numbers
        _give(tables, style, to, grid_of=grid_of, is_page=table == "all" and not only_verdicts)
    if not all_ran:
        raise typer.Exit(1)


def _plan(
    chosen: list[PaperTable],
    figure: PaperFigure | None,
    folders: list[Path],
    out_folder: Path,
    size: Size,
    *,
    n_workers: int,
) -> None:
    """Print what --run would run."""
    from holdfast.cli.plan import print_plan
    from holdfast.experiments.results import ResultStore
    from holdfast.report.figures import missing_for_figure
    from holdfast.report.paper import missing_experiments, stored_runs

    runs = stored_runs(folder for folder in folders if folder.exists())
    missing = [each for table in chosen for each in missing_experiments(table, runs, size)]
    missing += missing_for_figure(figure, runs, size) if figure else []
    print_plan(missing, ResultStore(out_folder), others=[run.result for run in runs], n_workers=n_workers)


def _run_each(experiments: list[Experiment], *, store: ResultStore, workers: int, quiet: bool, how: How) -> bool:
    """Run what is missing; what fails is named in a warning and leaves its place empty. Whether all of it ran."""
    from holdfast.cli.failures import FAILURES
    from holdfast.cli.progress import run_all
    from holdfast.cli.sweeping import run_at_once

    if workers > 1:
        report = run_at_once(experiments, store, workers=workers, quiet=quiet, **how)
        for failure in report.failures:
            _warn(failure.experiment, failure.reason)
        return not report.failures
    all_ran = True
    for experiment in experiments:
        try:
            run_all([experiment], store, quiet=quiet, **how)
        except FAILURES as error:
            _warn(experiment, error)
            all_ran = False
    return all_ran


def _warn(experiment: Experiment, reason: object) -> None:
    warnings.warn(f"{experiment.label} was not run to its end: {reason}", stacklevel=1)


def _list() -> None:
    from holdfast.report.figures import paper_figures
    from holdfast.report.paper import DRR, publications

    out = _console()
    for name, publication in publications().items():
        out.print(f"{publication.title} ({publication.source})")
        listed = RichTable(box=None, show_header=False, padding=(0, 2, 0, 2))
        for table in publication.tables:
            listed.add_row(table.id, table.title, ", ".join(table.recipes))
        for figure in paper_figures().values() if name == DRR else []:
            listed.add_row(figure.id, figure.title, ", ".join(figure.recipes))
        out.print(listed)


def _give_figure(figure: Figure, style: str, to: Path | None) -> None:
    """Print the figure, or write it into a file: its picture, or the numbers behind it."""
    from holdfast.report.figures import with_maps
    from holdfast.report.rendering import ours
    from holdfast.report.svg import draw

    if style == "svg":
        _write(draw(with_maps(figure)), to)
    else:
        _give(list(figure.tables), style, to, grid_of=ours, is_page=False)


def _give(tables: list[Table], style: str, to: Path | None, *, grid_of: Callable[[Table], Grid], is_page: bool) -> None:
    """Print the tables, or write them into a file; all of them in Markdown are the page of results."""
    from holdfast.report.rendering import terminal

    if style == "terminal":
        file = sys.stdout if to is None else io.StringIO()
        width = console().width if file.isatty() else UNLIMITED
        drawn = [terminal(grid_of(table), width) for table in tables]
        _console(file, *drawn).print(*drawn, sep="\n")
        text = file.getvalue() if isinstance(file, io.StringIO) else ""
    else:
        base = Path() if to is None else to.parent
        text = _text(tables, style, base, grid_of=grid_of, is_page=is_page)
    _write(text, to)


def _write(text: str, to: Path | None) -> None:
    text = printable(text)
    if to is None:
        sys.stdout.write(text)
        return
    from holdfast.experiments.results import write_text

    to.parent.mkdir(parents=True, exist_ok=True)
    write_text(to, text)
    _console().print(f"written to {to}")


def _text(tables: list[Table], style: str, base: Path, *, grid_of: Callable[[Table], Grid], is_page: bool) -> str:
    from holdfast.report.page import results_page
    from holdfast.report.rendering import RENDERERS, as_csv

    if style == "csv":
        return as_csv(tables, base)
    if style == "markdown" and is_page:
        return results_page(tables, command=shlex.join(["holdfast", *sys.argv[1:]]), base=base)
    grids = [grid_of(table) for table in tables]
    titles = [f"## {grid.title}\n\n" if style == "markdown" else "" for grid in grids]
    drawn = [RENDERERS[style](grid, base) for grid in grids]
    return "\n\n".join(title + text for title, text in zip(titles, drawn, strict=True)) + "\n"


def _console(file: TextIO | None = None, *drawn: RenderableType) -> Console:
    """Return a console as wide as the window and what is `drawn`: a table that is cut lacks numbers."""
    file = file or sys.stdout
    made = console(file=file, width=console().width if file.isatty() else 240)
    unlimited = made.options.update(max_width=UNLIMITED)
    made.width = max([made.width, *(Measurement.get(made, unlimited, each).minimum for each in drawn)])
    return made
