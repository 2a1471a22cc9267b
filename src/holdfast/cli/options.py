"""Options, printing and stopping shared by all commands."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.box import SIMPLE
from rich.table import Table

from holdfast.cli.printing import console
from holdfast.core.checkpoint import CorruptCheckpoint
from holdfast.experiments.equivalent import read_equivalences
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probing import make_probe, parse_logs, parse_probes
from holdfast.experiments.protocol import by_protocol
from holdfast.experiments.recipes import Recipe, Size, load_recipe, parse_changes
from holdfast.experiments.results import Refused, Result
from holdfast.experiments.run import Interrupted
from holdfast.experiments.tables import code_notes, comparison, parse_columns, unlike
from holdfast.methods._base import Diverged
from holdfast.parts import Unknown
from holdfast.settings import Part

# What a command answers with a sentence instead of a traceback.
FAILURES = (OSError, ValueError, Refused, CorruptCheckpoint, Diverged, MemoryError)

# A pipe has no width: a table is not cut there to fit 80 columns.
out = console(soft_wrap=True, width=None if sys.stdout.isatty() else 240)
err = console(stderr=True, soft_wrap=True)

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name or TOML file, or a stream's name.")]
Methods = Annotated[str, typer.Option(help="Rows or methods, with commas between; else those that the recipe names.")]
AllMethods = Annotated[str, typer.Option("--methods", help="Rows or methods, with commas between; else all rows.")]
Seeds = Annotated[str, typer.Option(help="With commas between, or a range as 1234-1238.")]
AllSeeds = Annotated[str, typer.Option("--seeds", help="As 1234,1235 or 1234-1238; else all of the recipe.")]
SizeName = Annotated[str, typer.Option("--size", help="cpu (what one machine can run) or full.")]
OutFolder = Annotated[Path, typer.Option("--out", help="The folder that results go to.")]
Data = Annotated[Path | None, typer.Option(help="Where the data sets are; else HOLDFAST_DATA.")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="A change, as method.replay_size=64 or lr=0.1.")]
Subset = Annotated[str | None, typer.Option("--tasks", help="tuning, report or all tasks of the stream.")]
NTasks = Annotated[int | None, typer.Option(help="Only the first so many tasks.")]
Device = Annotated[str, typer.Option(help="Where to learn.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of torch; other numbers of threads round otherwise.")]
Every = Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Throw away what is there and begin anew.")]
ContinueAnyway = Annotated[
    bool, typer.Option("--continue-anyway", help="Go on from checkpoints of other code; the result says so.")
]
Keep = Annotated[bool, typer.Option("--record", help="Keep features and memory, which a report then shows.")]
Measures = Annotated[
    list[str] | None,
    typer.Option("--probe", metavar="NAME[.OPTION=VALUE]", help="Measure more, as curve.every=10 or my_module:Mine."),
]
Logs = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="LOGGER[:PLACE]", help="Log to tensorboard:DIR, mlflow:URI or wandb[:PROJECT]."),
]
Columns = Annotated[str, typer.Option("--columns", help="Of the table, as A_T,A_AUC,seconds.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def sized_recipe(name: str, size: str) -> Recipe:
    """The recipe of a name or file, in a size."""
    return load_recipe(name).sized(cast(Size, size))


def all_changes(texts: list[str] | None, tasks: str | None, n_tasks: int | None) -> dict[str, Any]:
    """Return the changes of --set, --tasks and --n-tasks together."""
    changes = parse_changes(texts or [])
    if tasks is not None:
        changes["stream.tasks"] = tasks
    if n_tasks is not None:
        changes["stream.n_tasks"] = n_tasks
    return changes


def all_probes(texts: list[str] | None, logs: list[str] | None) -> tuple[Part, ...]:
    """The probes that --probe and --log ask for, all of which can be made."""
    probes = (*parse_probes(texts or []), *parse_logs(logs or []))
    for part in probes:
        make_probe(part)
    return probes


def all_experiments(
    recipe: Recipe, rows: Iterable[str], seeds: Iterable[int], changes: dict[str, Any]
) -> list[Experiment]:
    """Each row with each of the seeds."""
    return [recipe.experiment(row.strip(), seed=seed, changes=changes) for seed in seeds for row in rows]


def parse_seeds(text: str) -> list[int]:
    """Seeds written as 1234, 1234,1235 or 1234-1238."""
    try:
        if "-" in text:
            first, last = map(int, text.split("-"))
            seeds = list(range(first, last + 1))
        else:
            seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds:
        raise Unknown(f"'{text}' are no seeds: write 1234, 1234,1235 or 1234-1238")
    return seeds


@contextlib.contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C or SIGTERM only asks to stop after the step; the second ends at once."""
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            sys.exit(128 + number)
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    except Interrupted as error:
        again = shlex.join(["holdfast", *(word for word in sys.argv[1:] if word != "--fresh")])
        err.print(f"{error}; this goes on from there:\n  {again}")
        sys.exit(128 + asked[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_comparison(results: list[Result], folder: Path, columns: str = "") -> None:
    """A table for each protocol, and below it what differs between its rows and the code of their runs.

    Args:
        folder: of the results, which may say what code is equivalent.
        columns: of the tables, with commas between; by default the usual ones.
    """
    same = read_equivalences([folder])
    chosen = parse_columns(columns) if columns else []
    for protocol, group in by_protocol(results).items():
        out.print(text_table(protocol.heading, *comparison(group, same, chosen)))
        for line in [*unlike(group), *code_notes(group, same)]:
            out.print(f"  {line}")
        out.print()


def text_table(title: str, header: list[str], rows: list[list[str]]) -> Table:
    """Rows of text as a table to print."""
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def as_document(result: Result, folder: Path | None) -> dict[str, Any]:
    """A result and what follows from it, as JSON."""
    document = {"metrics": result.metrics, **result.model_dump(mode="json")}
    return document if folder is None else {"folder": str(folder), **document}


def print_json(document: Any) -> None:
    """The one thing that a command with --json prints."""
    sys.stdout.write(json.dumps(document, indent=1) + "\n")
