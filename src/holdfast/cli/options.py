"""Options, consoles and stopping shared by all commands. Nothing here imports torch, so that help comes at once."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.box import SIMPLE
from rich.table import Table

from holdfast.cli import completion
from holdfast.cli.printing import console
from holdfast.parts import Unknown
from holdfast.report.fitting import fitting, longest, not_shown, smallest_width

MOST_SEEDS = 10_000
WIDER = "a wider window or --json shows all"


def folder_to_write(path: Path) -> Path:
    """Return `path` if it is a folder, or can become one."""
    there = next((place for place in (path, *path.parents) if place.exists()), Path())
    if not there.is_dir():
        which = "is" if there == path else f"cannot be made, since {there} is"
        raise NotADirectoryError(f"--out {path} {which} no folder: give another --out")
    return path


def known_columns(text: str) -> str:
    """Return `text` if it names columns of tables: a command that learns for hours shall not end with a wrong one."""
    if text:
        from holdfast.experiments.tables import parse_columns

        parse_columns(text)
    return text


# A pipe has no width: a table is not cut there to fit 80 columns. A closed stream is None.
out = console(soft_wrap=True, width=None if sys.stdout is not None and sys.stdout.isatty() else 240)
err = console(stderr=True, soft_wrap=True)

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe's name or TOML file, or a stream's name.",
        autocompletion=completion.recipes_and_streams,
    ),
]
Method = Annotated[str, typer.Option(help="A row of the recipe, or any method.", autocompletion=completion.methods)]
OneSeed = Annotated[int | None, typer.Option("--seed", help="Seed of data order, weights and memory.")]
Methods = Annotated[
    str,
    typer.Option(
        help="Rows or methods, separated by commas; by default those that the recipe names.",
        autocompletion=completion.methods,
    ),
]
AllMethods = Annotated[
    str,
    typer.Option(
        "--methods",
        help="Rows or methods, separated by commas; by default all rows.",
        autocompletion=completion.methods,
    ),
]
Seeds = Annotated[str, typer.Option(help="Seeds, separated by commas, or a range as 1234-1238.")]
AllSeeds = Annotated[
    str, typer.Option("--seeds", help="Seeds, as 1234,1235 or 1234-1238; by default all of the recipe.")
]
SizeName = Annotated[
    str,
    typer.Option(
        "--size", help="Size of the runs: 'cpu' (for one machine) or 'full'.", autocompletion=completion.sizes
    ),
]
OutFolder = Annotated[Path, typer.Option("--out", help="Folder of the results.", callback=folder_to_write)]
Data = Annotated[Path | None, typer.Option(help="Folder of the data sets; by default HOLDFAST_DATA.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting, for example method.replay_size=64 or lr=0.1.")
]
Subset = Annotated[str | None, typer.Option("--tasks", help="Tasks of the stream: tuning, report or all.")]
NTasks = Annotated[int | None, typer.Option(help="Learn only the first tasks, this many; by default all.")]
Device = Annotated[str, typer.Option(help="Device of torch, for example cpu or cuda.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of torch. Another number may round differently.")]
Every = Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Discard the stored result or checkpoint, and start again.")]
ContinueAnyway = Annotated[
    bool, typer.Option("--continue-anyway", help="Resume from checkpoints of other code; the result says so.")
]
Keep = Annotated[bool, typer.Option("--record", help="Record features and memory for a report.")]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "--probe", metavar="NAME[.OPTION=VALUE]", help="Measure more, for example curve.every=10 or my_module:Mine."
    ),
]
Logs = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="LOGGER[:PLACE]", help="Log to tensorboard:DIR, mlflow:URI or wandb[:PROJECT]."),
]
Columns = Annotated[
    str, typer.Option("--columns", help="Columns of the table, for example A_T,A_AUC,seconds.", callback=known_columns)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the results only.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the runs and how long they take; learn nothing.")]
Budget = Annotated[
    str,
    typer.Option(help="Equal cost for every method: a number of GFLOP per batch, or a row whose cost is taken."),
]
RealTime = Annotated[
    str,
    typer.Option(
        help="A stream that does not wait: slower methods miss batches. A number of GFLOP per batch, or a row."
    ),
]
LabelDelay = Annotated[int, typer.Option(min=0, help="Number of batches after which the labels of a batch arrive.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of each command that learns the stream of a recipe."""

    size: SizeName = "full"
    changes: Changes = None
    tasks: Subset = None
    n_tasks: NTasks = None
    budget: Budget = ""
    real_time: RealTime = ""
    label_delay: LabelDelay = 0
    out_folder: OutFolder = Path("runs")
    data: Data = None
    device: Device = "cpu"
    checkpoint_every: Every = 60
    continue_anyway: ContinueAnyway = False
    record: Keep = False
    probe: Measures = None
    log: Logs = None
    dry_run: DryRun = False
    quiet: Quiet = False
    as_json: Json = False


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option for each field of its parameter `options`, as Typer reads signatures."""
    own = inspect.signature(command).parameters.values()
    hints = get_type_hints(command, include_extras=True) | get_type_hints(RunOptions, include_extras=True)
    names = [field.name for field in fields(RunOptions)]
    shared = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
        for field in fields(RunOptions)
    ]

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        options = RunOptions(**{name: given.pop(name) for name in names})
        command(**given, options=options)

    parameters = [*(each for each in own if each.name != "options"), *shared]
    parameters = [each.replace(annotation=hints[each.name]) for each in parameters]
    flat.__dict__["__signature__"] = inspect.Signature(parameters)
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    return flat


def parse_seeds(text: str) -> list[int]:
    """Return the seeds written as 1234, 1234,1235 or 1234-1238.

    Example:
        >>> parse_seeds("1234-1236")
        [1234, 1235, 1236]
    """
    try:
        if "-" in text:
            first, last = map(int, text.split("-"))
            seeds = list(range(first, min(last, first + MOST_SEEDS) + 1))
        else:
            seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds:
        raise Unknown(f"'{text}' are no seeds: write 1234, 1234,1235 or 1234-1238")
    if len(seeds) > MOST_SEEDS:
        raise Unknown(f"'{text}' are more than {MOST_SEEDS:,} seeds: name fewer")
    return seeds


def parse_rows(text: str) -> list[str]:
    """Return the rows or methods written with commas between.

    Example:
        >>> parse_rows("er, drr")
        ['er', 'drr']
    """
    rows = [row.strip() for row in text.split(",")]
    if not all(rows):
        raise Unknown(f"an empty name in '{text}': write names with a comma between two, as er,drr")
    return rows


@contextlib.contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Context manager: the first Ctrl-C or SIGTERM only asks to stop after the step; the second ends at once."""
    from holdfast.experiments.run import Interrupted

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


def text_table(title: str, header: list[str], rows: list[list[str]]) -> Table:
    """Return rows of text as a table to print. Words of the first column may be wrapped, numbers may not."""
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for i, name in enumerate(header):
        texts = [name, *(row[i] for row in rows)]
        if i == 0:
            table.add_column(name, min_width=longest(word for text in texts for word in text.split()), overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True, min_width=longest(texts))
    for row in rows:
        table.add_row(*row)
    return table


def fitted_table(title: str, header: list[str], rows: list[list[str]], width: int) -> tuple[Table, list[str]]:
    """Return the table with the columns that fit into `width`, and the names of those that do not."""

    def make(places: list[int]) -> Table:
        return text_table(title, [header[i] for i in places], [[row[i] for i in places] for row in rows])

    return fitting(header, make, width, last=["seeds"])


def print_table(title: str, header: list[str], rows: list[list[str]], advice: str = WIDER) -> None:
    """Print a table as wide as the window, and below it which columns do not fit."""
    table, missing = fitted_table(title, header, rows, out.width)
    out.print(table, width=max(out.width, smallest_width(table)))
    if missing:
        out.print(f"  {not_shown(missing, out.width, advice)}")


def print_json(document: Any) -> None:
    """Print one JSON document, and nothing else, for a command with --json."""
    sys.stdout.write(json.dumps(document, indent=1) + "\n")
