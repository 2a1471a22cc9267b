"""`holdfast data`: which data sets there are, whether they are here and whole, and how to get them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from holdfast.cli.printing import console, printable
from holdfast.data.awa1 import N_PUBLISHED, convert_awa1
from holdfast.data.catalogue import CATALOGUE, DataSet, Finding, Status, UnknownDataSet, find
from holdfast.data.download import DownloadError, download
from holdfast.data.places import BrokenData, MissingData, data_root

app = typer.Typer(no_args_is_help=True, help="List, download, check and convert data sets.")

N_SHOWN = 10  # broken files named on screen; --json names all

DataOption = Annotated[Path | None, typer.Option("--data", help="Folder of the data sets, instead of HOLDFAST_DATA.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
NamesArgument = Annotated[list[str] | None, typer.Argument(help="Names of data sets; by default all.")]


@app.command("list")
def list_data_sets(data: DataOption = None, as_json: JsonOption = False) -> None:
    """List the data sets with their terms of use and how to get them."""
    root = data_root(data)
    if as_json:
        _print_json(root, [_described(data_set) for data_set in CATALOGUE.values()])
        return
    table = _table("name", "what it is", "download")
    for data_set in CATALOGUE.values():
        words = [
            data_set.title,
            f"streams: {', '.join(data_set.streams)}",
            f"terms: {data_set.licence}",
            f"from: {data_set.homepage}",
            f"by hand: {data_set.by_hand}",
        ]
        table.add_row(data_set.name, "\n".join(words), data_set.download_size, end_section=True)
    _print(table)
    _print(f"expected in {root}")


@app.command()
def status(names: NamesArgument = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Take a quick look: which data sets are here, and what is missing."""
    root = data_root(data)
    with _plain_errors():
        found = {data_set.name: data_set.status(root) for data_set in _named(names)}
    if as_json:
        _print_json(root, [{"name": name, **asdict(seen)} for name, seen in found.items()])
        return
    table = _table("name", "state", "missing")
    for name, seen in found.items():
        table.add_row(name, seen.state, "\n".join(seen.missing))
    _print(table)
    _print(f"looked in {root}")


@app.command()
def verify(names: NamesArgument = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Take a deep look, at every byte; exit with 1 if something here is broken, or a named set is absent."""
    root = data_root(data)
    seen: dict[str, Status] = {}
    findings: dict[str, list[Finding]] = {}
    with _plain_errors(), _bar() as show:
        for data_set in _named(names):
            seen[data_set.name] = data_set.status(root)
            findings[data_set.name] = []
            if seen[data_set.name].state != "absent":
                findings[data_set.name] = data_set.verify(root, _under(f"verifying {data_set.name}", show))
    broken = {name for name, found in findings.items() if not all(finding.ok for finding in found)}
    absent = {name for name, status in seen.items() if status.state == "absent"}
    if as_json:
        _print_json(
            root,
            [
                {
                    "name": name,
                    "state": seen[name].state,
                    "ok": None if name in absent else name not in broken,
                    "findings": [asdict(finding) for finding in found],
                }
                for name, found in findings.items()
            ],
        )
    else:
        _print(_verify_table(findings, absent))
        _print(f"looked in {root}")
    if broken or (names and absent):
        raise typer.Exit(1)


@app.command("download")
def download_data_sets(
    names: Annotated[list[str], typer.Argument(help="Data sets.")],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch data sets from their publishers, going on where an earlier call stopped."""
    root = data_root(data)
    outcomes = []
    with _plain_errors():
        data_sets = _named(names)  # all of them, before the first byte
        for data_set in data_sets:
            if not as_json and data_set.archives and data_set.status(root).state == "absent":
                _announce(data_set)
            try:
                with _bar() as show:
                    outcome = download(data_set.name, root, show)
            except KeyboardInterrupt:
                _fail("stopped: what has come is kept, the same command continues", 130)
            where = str(root / data_set.where)
            outcomes.append({"name": data_set.name, "outcome": outcome, "where": where})
            if not as_json:
                _print(f"{data_set.name}: {outcome}, in {where}")
    if as_json:
        _print_json(root, outcomes)


@app.command("convert")
def convert_data_set(
    name: Annotated[str, typer.Argument(help="awa1_features.")],
    folder: Annotated[Path, typer.Argument(help="The folder Animals_with_Attributes, of the unpacked archives.")],
    data: DataOption = None,
) -> None:
    """Make a data set of what its publisher offers: awa1_features of the descriptors of AwA's first edition."""
    with _plain_errors():
        data_set = _named([name])[0]
        if data_set.name != "awa1_features":
            _fail(f"{data_set.name} is read as its publisher offers it: only awa1_features is converted", 2)
        to = data_root(data) / data_set.where
        if to.exists():
            _fail(f"{to} is there: move it away first", 1)
        with _bar() as show:
            made = convert_awa1(folder, to, _under("pictures read", show))
    kept = f"{made.n_numbers:,} numbers made {made.n_features}, with {100 * made.energy:.0f} % of the energy"
    _print(f"{data_set.name}: {made.n_pictures:,} pictures, {kept}, in {to}")
    if not made.is_as_published:
        _print("the publisher's archives have {:,} pictures and {:,} numbers: some are missing".format(*N_PUBLISHED))
    _print("not checked against the original: the stored results are of another file, and may differ")


def _announce(data_set: DataSet) -> None:
    """Print source, terms and unchecked parts of each download."""
    for archive in data_set.archives:
        _print(f"{data_set.name}: {archive.urls[0]}")
        if archive.checksum is None:
            _print(f"no checksum of {archive.file} is known: a damaged file may go unnoticed")
    _print(f"{data_set.name}: {data_set.download_size}; terms: {data_set.licence}")


def _described(data_set: DataSet) -> dict[str, Any]:
    return {
        "name": data_set.name,
        "title": data_set.title,
        "where": data_set.where,
        "homepage": data_set.homepage,
        "archives": [asdict(archive) for archive in data_set.archives],
        "download_size": data_set.download_size,
        "licence": data_set.licence,
        "streams": data_set.streams,
        "by_hand": data_set.by_hand,
    }


def _verify_table(findings: dict[str, list[Finding]], absent: set[str]) -> Table:
    table = _table("name", "found", "file")
    for name, found in findings.items():
        good = [finding for finding in found if finding.ok]
        broken = [finding for finding in found if not finding.ok]
        rows = [(finding.words, finding.file) for finding in good]
        rows += [(f"BROKEN: {finding.words}", finding.file) for finding in broken[:N_SHOWN]]
        if len(broken) > N_SHOWN:
            rows.append((f"BROKEN: {len(broken) - N_SHOWN:,} more; --json names all", ""))
        if name in absent:
            rows.append(("absent", ""))
        for row, (words, file) in enumerate(rows):
            table.add_row("" if row else name, words, file)
        table.add_section()
    return table


def _table(*columns: str) -> Table:
    """Folds what is too long instead of cutting it: a file name or sum is of no use in half."""
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _named(names: list[str] | None) -> list[DataSet]:
    """Return the data sets of these names, each once; all where none is named."""
    return [find(name) for name in dict.fromkeys(names or CATALOGUE)]


def _print(content: str | Table) -> None:
    # A path or address is wrapped nowhere, so that it can be copied.
    console().print(content, soft_wrap=isinstance(content, str))


def _print_json(root: Path, data_sets: list[dict[str, Any]]) -> None:
    print(json.dumps({"root": str(root), "data_sets": data_sets}, indent=2))


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Context manager: every foreseeable failure inside ends as one sentence on standard error."""
    try:
        yield
    except UnknownDataSet as error:
        _fail(str(error), 2)
    except (DownloadError, BrokenData, MissingData) as error:
        _fail(str(error), 1)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)


def _fail(words: str, code: int) -> NoReturn:
    print(printable(words), file=sys.stderr)
    raise typer.Exit(code)


Show = Callable[[str, int, int | None], None]


def _under(step: str, show: Show) -> Callable[[int, int], None]:
    return lambda done, total: show(step, done, total)


@contextlib.contextmanager
def _bar() -> Iterator[Show]:
    """Context manager: a function that draws a bar for each step, on a terminal; elsewhere it does nothing."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=10),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(stderr=True), disable=not sys.stderr.isatty()) as bars:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step)
            bars.update(tasks[step], completed=done, total=total)

        yield show
