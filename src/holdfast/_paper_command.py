"""`holdfast paper`: the paper's tables with our numbers beside, from stored results."""

from __future__ import annotations

import io
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TextIO, cast, get_args

import torch
import typer
from rich.console import Console
from rich.table import Table as RichTable

from holdfast._command_line import FAILURES, Data, Device, OutFolder, Threads
from holdfast._running import run_all
from holdfast.build import check_name
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.recipes import Size
from holdfast.experiments.results import ResultStore, write_text
from holdfast.report.page import results_page
from holdfast.report.paper import chosen_tables, make_table, missing_experiments, paper_tables, stored_runs
from holdfast.report.rendering import RENDERERS, Grid, as_csv, numbers, terminal, verdicts
from holdfast.report.tables import Table

FORMATS = ["terminal", "csv", *RENDERERS]

GridOf = Callable[[Table], Grid]


def paper_command(
    table: Annotated[str | None, typer.Argument(help="table-1 to table-8, or all; else they are listed.")] = None,
    stored: Annotated[Path | None, typer.Option("--from", help="Read results here, not from --out.")] = None,
    out_folder: OutFolder = Path("runs"),
    size: Annotated[str, typer.Option(help="cpu (what one machine can run) or full.")] = "cpu",
    style: Annotated[str, typer.Option("--format", help=", ".join(FORMATS) + ".")] = "terminal",
    to: Annotated[Path | None, typer.Option(help="Write into this file instead of printing.")] = None,
    only_verdicts: Annotated[
        bool, typer.Option("--verdicts", help="Say of each number whether it is reproduced, or why not.")
    ] = False,
    run: Annotated[bool, typer.Option("--run", help="First run what is missing.")] = False,
    data: Data = None,
    device: Device = "cpu",
    threads: Threads = 1,
) -> None:
    """The paper's tables with our numbers beside; what was not run is a dash."""
    check_name(size, list(get_args(Size)), among="the sizes of a table")
    check_name(style, FORMATS, among="the formats of a table")
    if table is None and not only_verdicts:
        _list()
        return
    chosen, sized = chosen_tables(table or "all"), cast(Size, size)
    folders = [folder for folder in (stored, out_folder if run or stored is None else None) if folder is not None]
    all_ran = True
    if run:
        torch.set_num_threads(threads)
        out_folder.mkdir(parents=True, exist_ok=True)
        quiet = style != "terminal" and to is None  # a document is printed, and nothing else
        for each in chosen:
            missing = missing_experiments(each, stored_runs(folders), sized)
            all_ran &= _run_each(missing, ResultStore(out_folder), data=data, device=device, quiet=quiet)
    runs = stored_runs(folders)
    tables = [make_table(each, runs, sized) for each in chosen]
    _give(
        tables,
        style,
        to,
        grid_of=verdicts if only_verdicts else numbers,
        is_page=table == "all" and not only_verdicts,
    )
    if not all_ran:
        raise typer.Exit(1)


def _run_each(
    experiments: list[Experiment], store: ResultStore, *, data: Path | None, device: str, quiet: bool
) -> bool:
    """Run what a table lacks; what fails is named in a warning and leaves its cell empty. Whether all of it ran."""
    all_ran = True
    for experiment in experiments:
        try:
            run_all([experiment], store, data=data, device=device, quiet=quiet)
        except FAILURES as error:
            warnings.warn(f"{experiment.label} was not run to its end: {error}", stacklevel=1)
            all_ran = False
    return all_ran


def _list() -> None:
    listed = RichTable(box=None, show_header=False, padding=(0, 2, 0, 0))
    for table in paper_tables().values():
        listed.add_row(table.id, table.title, ", ".join(table.recipes))
    _console().print(listed)


def _give(tables: list[Table], style: str, to: Path | None, *, grid_of: GridOf, is_page: bool) -> None:
    """Print the tables, or write them into a file; all of them in Markdown are the page of results."""
    if style == "terminal":
        file = sys.stdout if to is None else io.StringIO()
        console = _console(file)
        for table in tables:
            console.print(terminal(grid_of(table)))
        text = file.getvalue() if isinstance(file, io.StringIO) else ""
    else:
        base = Path() if to is None else to.parent
        text = _text(tables, style, base, grid_of=grid_of, is_page=is_page)
    if to is None:
        sys.stdout.write(text)
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    write_text(to, text)
    _console().print(f"written to {to}", markup=False)


def _text(tables: list[Table], style: str, base: Path, *, grid_of: GridOf, is_page: bool) -> str:
    if style == "csv":
        return as_csv(tables, base)
    if style == "markdown" and is_page:
        return results_page(tables, command=shlex.join(["holdfast", *sys.argv[1:]]), base=base)
    grids = [grid_of(table) for table in tables]
    titles = [f"## {grid.title}\n\n" if style == "markdown" else "" for grid in grids]
    drawn = [RENDERERS[style](grid, base) for grid in grids]
    return "\n\n".join(title + text for title, text in zip(titles, drawn, strict=True)) + "\n"


def _console(file: TextIO | None = None) -> Console:
    """As wide as the tables are: one that is cut to the width of a window lacks numbers."""
    file = file or sys.stdout
    return Console(file=file, highlight=False, width=max(130, Console().width) if file.isatty() else 240)
