"""The command line: parses, calls, prints."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, cast

import torch
import typer
from rich.table import Table

from holdfast import __version__, parts
from holdfast.cli import data as data_command
from holdfast.cli import features, learn, paper, remake, report, sweep
from holdfast.cli.options import (
    FAILURES,
    Changes,
    Columns,
    ContinueAnyway,
    Data,
    Device,
    Every,
    Fresh,
    Json,
    Keep,
    Logs,
    Measures,
    Methods,
    NTasks,
    OutFolder,
    RecipeName,
    Seeds,
    SizeName,
    Subset,
    Threads,
    all_changes,
    all_experiments,
    all_probes,
    as_document,
    err,
    out,
    parse_seeds,
    print_comparison,
    print_json,
    sized_recipe,
    text_table,
)
from holdfast.cli.progress import run_all
from holdfast.experiments.equivalent import read_equivalences
from holdfast.experiments.probing import find_probe, probe_names
from holdfast.experiments.protocol import by_protocol
from holdfast.experiments.recipes import load_recipe, recipe_names
from holdfast.experiments.results import Result, ResultStore, read_result
from holdfast.experiments.run import How
from holdfast.experiments.tables import compared, comparison, drift_rows, matrix_rows, parse_columns
from holdfast.parts import FOLDERS, Kind, Unknown, check_name, find, names

app = typer.Typer(
    help="Online continual learning: learn a stream once, in bounded memory, and do not forget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_command.app, name="data")
app.command("learn")(learn.learn_command)
app.command("predict")(learn.predict_command)
app.command("sweep")(sweep.sweep_command)
app.command("paper")(paper.paper_command)
app.command("remake")(remake.remake_command)
app.command("report")(report.report_command)
app.command("features")(features.features_command)


@app.command("run")
def run_command(
    recipe: RecipeName,
    method: Annotated[str, typer.Option(help="A row of the recipe, or any method.")] = "er",
    seed: Annotated[int | None, typer.Option(help="Of data order, weights and memory.")] = None,
    size: SizeName = "full",
    changes: Changes = None,
    tasks: Subset = None,
    n_tasks: NTasks = None,
    out_folder: OutFolder = Path("runs"),
    data: Data = None,
    device: Device = "cpu",
    threads: Threads = 1,
    checkpoint_every: Every = 60,
    fresh: Fresh = False,
    continue_anyway: ContinueAnyway = False,
    record: Keep = False,
    probe: Measures = None,
    log: Logs = None,
    as_json: Json = False,
) -> None:
    """Learn one stream with one method; a run that was killed goes on where it was."""
    torch.set_num_threads(threads)
    experiment = sized_recipe(recipe, size).experiment(method, seed=seed, changes=all_changes(changes, tasks, n_tasks))
    store = ResultStore(out_folder)
    how = How(
        data=data,
        device=device,
        checkpoint_seconds=checkpoint_every,
        record=record,
        probes=all_probes(probe, log),
        continue_anyway=continue_anyway,
    )
    (result,) = run_all([experiment], store, fresh=fresh, quiet=as_json, **how)
    folder = store.folder(experiment)
    if as_json:
        print_json(as_document(result, folder))
    else:
        out.print(f"{_numbers(result)}\nwritten to {folder}")


@app.command()
def compare(
    recipe: RecipeName = "permuted_digits",
    methods: Methods = "",
    seeds: Seeds = "1234",
    size: SizeName = "full",
    changes: Changes = None,
    tasks: Subset = None,
    n_tasks: NTasks = None,
    out_folder: OutFolder = Path("runs"),
    data: Data = None,
    device: Device = "cpu",
    threads: Threads = 1,
    checkpoint_every: Every = 60,
    fresh: Fresh = False,
    continue_anyway: ContinueAnyway = False,
    record: Keep = False,
    probe: Measures = None,
    log: Logs = None,
    columns: Columns = "",
    as_json: Json = False,
) -> None:
    """Learn one stream with several methods and seeds, and print a table."""
    torch.set_num_threads(threads)
    loaded = sized_recipe(recipe, size)
    rows = methods.split(",") if methods else loaded.compare
    experiments = all_experiments(loaded, rows, parse_seeds(seeds), all_changes(changes, tasks, n_tasks))
    store = ResultStore(out_folder)
    how = How(
        data=data,
        device=device,
        checkpoint_seconds=checkpoint_every,
        record=record,
        probes=all_probes(probe, log),
        continue_anyway=continue_anyway,
    )
    results = run_all(experiments, store, fresh=fresh, quiet=as_json, **how)
    if as_json:
        print_json([as_document(result, store.folder(result.experiment)) for result in results])
        return
    print_comparison(results, out_folder, columns)
    out.print(f"written to {out_folder / loaded.name}")


@app.command("list")
def list_command(
    kind: Annotated[
        str, typer.Argument(help="methods, streams, selections, retrievals, backbones, probes or recipes.")
    ],
    as_json: Json = False,
) -> None:
    """Say what there is."""
    check_name(kind, [*FOLDERS, "probes", "recipes"], among="what can be listed")
    if kind == "recipes":
        found = {name: ", ".join(load_recipe(name).rows) for name in recipe_names()}
    elif kind == "probes":
        found = {name: _first_sentence(find_probe(name)) for name in probe_names()}
    else:
        known = cast(Kind, kind)
        found = {name: _first_sentence(find(known, name)) for name in names(known)}
    if as_json:
        print_json(found)
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, text in found.items():
        table.add_row(name, text)
    out.print(table)


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="A run's folder, or a folder of many.")] = Path("runs"),
    as_json: Json = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table in Markdown.")] = False,
    columns: Columns = "",
) -> None:
    """Print stored results: a table of many, or everything about one."""
    if not path.exists():
        raise FileNotFoundError(f"no results at {path}: name the folder of a run, or one that holds runs")
    results = [read_result(path / "result.json")] if (path / "result.json").exists() else ResultStore(path).results()
    if as_json:
        print_json([as_document(result, None) for result in results])
        return
    if not results:
        raise FileNotFoundError(f"no finished run in {path}: 'holdfast run' makes one")
    if len(results) == 1 and not as_markdown and not columns:
        _show_one(results[0])
        return
    if not as_markdown:
        print_comparison(results, path, columns)
        return
    same = read_equivalences([path])
    chosen = parse_columns(columns) if columns else []
    for protocol, group in by_protocol(results).items():
        out.print(f"{compared(protocol.heading, group, same, chosen)}\n")


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        out.print(f"holdfast {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command; an error is a sentence and an exit code, never a traceback."""
    warnings.showwarning = lambda message, *_: err.print(f"warning: {_one_line(message)}")
    # So that --method my_module:Mine finds a file in the current folder, and nothing else does: a sklearn.py there
    # would be run instead of the package, here or, by Python's default, in a process of a sweep.
    parts.last_places = [str(Path.cwd())]
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        app()
    except Unknown as error:
        _fail(error, code=2)
    except FAILURES as error:
        _fail(error, code=1)


def _fail(error: BaseException, *, code: int) -> None:
    err.print(f"holdfast: {_one_line(error)}")
    sys.exit(code)


def _one_line(message: object) -> str:
    """A message that may hold names of files."""
    return " ".join(str(message).splitlines())


def _show_one(result: Result) -> None:
    experiment = result.experiment
    out.print(f"{experiment.label} ({experiment.digest})")
    for name, value in experiment.model_dump(mode="json").items():
        out.print(f"  {name:<13}{json.dumps(value)}")
    out.print(f"  {'versions':<13}{json.dumps(result.versions)}")
    out.print(f"  {'memory used':<13}{result.memory_samples:,} samples, {result.memory_bytes:,} bytes")
    if kept := result.footprint:
        terms = ", ".join(f"{name} {n_bytes / 1e6:.2f}" for name, n_bytes in kept)
        out.print(f"  {'kept in all':<13}{kept.total / 1e6:.1f} MB: {terms}")
    out.print(text_table("accuracy (%) on each task, a row after each task learned", *matrix_rows(result)))
    if result.moved:
        out.print(text_table("drift of held-out features, in units of their spread", *drift_rows(result)))
    out.print(_numbers(result))


def _numbers(result: Result) -> str:
    header, ((name, *values),) = comparison([result])
    pairs = [f"{label} {value}" for label, value in zip(header[1:], values, strict=True) if value != "-"]
    return f"{name}: {', '.join(pairs)}"


def _first_sentence(found: type[Any]) -> str:
    first = (found.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(first.split())
