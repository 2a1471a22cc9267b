"""The command line: which commands there are. The code of a command is imported when it is called."""

from __future__ import annotations

import importlib
import io
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast import __version__, parts
from holdfast.cli.endings import end_of, one_line
from holdfast.cli.options import err, out


class Command(NamedTuple):
    """Place of a command, a function or a Typer app of `holdfast.cli`, and the first paragraph of its help."""

    place: str
    help: str


# In the order in which --help lists them.
COMMANDS = {
    "run": Command("run:run_command", "Learn one stream with one method; a run that was killed goes on where it was."),
    "compare": Command("run:compare_command", "Learn one stream with several methods and seeds, and print a table."),
    "sweep": Command(
        "sweep:sweep_command",
        "Learn one stream with all rows and seeds of a recipe at once, and print a table; started again, it goes on.",
    ),
    "show": Command("show:show_command", "Print stored results: a table of many, or everything about one."),
    "report": Command(
        "report:report_command",
        "Write one page that shows stored results: tables, curves, drift and memory; it needs no network.",
    ),
    "paper": Command(
        "paper:paper_command",
        "Print the paper's tables and figures with our numbers; what was not run is a dash, or left out of a figure.",
    ),
    "remake": Command(
        "remake:remake_command",
        "Make stored runs again, and say whether they come out to the bit, else where they first part.",
    ),
    "learn": Command("learn:learn_command", "Learn a table in its order; each row is predicted before it is learned."),
    "predict": Command(
        "learn:predict_command",
        "Predict the label of each row of a table: CSV with the place of the row and its label.",
    ),
    "export": Command(
        "export:export_command", "Write a saved learner as an ONNX or torch.export file that scores without holdfast."
    ),
    "serve": Command(
        "serve:serve_command", "Serve named learners over HTTP: they learn while they predict, and survive a crash."
    ),
    "features": Command(
        "features:features_command",
        "Compute the features of every sample of a stream's data set, and store them in one file.",
    ),
    "data": Command("data:app", "List, download, check and convert data sets."),
    "check": Command(
        "check:check_command",
        "Test a method, selection, retrieval, stream, backbone or probe of your own against the package's contracts.",
    ),
    "list": Command(
        "listing:list_command", "List methods, wrappers, streams, selections, retrievals, backbones, probes or recipes."
    ),
}


def loaded(name: str) -> Any:
    """Import a command and return it with its options, as a command of Typer."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    found = getattr(importlib.import_module(f"holdfast.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name)(function)
    return typer.main.get_command(found)


class _Commands(TyperGroup):
    """All commands by name and help, each imported only when it is called or its options are asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: TyperCommand(name, help=command.help) for name, command in COMMANDS.items()}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if name is None else loaded(name), rest


app = typer.Typer(
    cls=_Commands,
    help="Online continual learning: learn a stream once, in bounded memory, and do not forget.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        out.print(f"holdfast {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command; an error that was foreseen ends it with a sentence and an exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who called
            setattr(sys, name, io.StringIO())
    warnings.showwarning = lambda message, *_: err.print(f"warning: {one_line(message)}")
    # So that --method my_module:Mine finds a file in the current folder, and nothing else does: a sklearn.py there
    # would be run instead of the package, here or, by Python's default, in a process of a sweep.
    parts.last_places = [str(Path.cwd())]
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        app()
    except Exception as error:
        ending = end_of(error)
        if ending is None:
            raise
        err.print(ending.text)
        sys.exit(ending.code)
