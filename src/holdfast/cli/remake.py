"""`holdfast remake`: stored runs made again, to see whether they come out to the bit."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from holdfast.cli.failures import FAILURES
from holdfast.cli.options import Data, Device, Every, Json, err, out, print_json, stop_on_signal
from holdfast.cli.progress import RunWatcher
from holdfast.experiments.code import other_code
from holdfast.experiments.equivalent import record_equivalence
from holdfast.experiments.remake import Remake, remake
from holdfast.experiments.results import Refused, Result, read_result, split_place


def remake_command(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT...", help="Folders of runs, result.json files, or results.jsonl#DIGEST."),
    ],
    tasks_only: Annotated[
        int | None, typer.Option(min=1, help="Learn only the first tasks, this many; by default all.")
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder to keep the new runs in; by default they are discarded.")
    ] = None,
    data: Data = None,
    device: Device = "cpu",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of torch; by default as many as the stored run had.")
    ] = None,
    checkpoint_every: Every = 60,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="Import code of another package that a result names.")
    ] = False,
    record: Annotated[
        bool,
        typer.Option("--record/--no-record", help="Record beside the results which code was shown to be equivalent."),
    ] = True,
    as_json: Json = False,
) -> None:
    """Make stored runs again, and say whether they come out to the bit, else where they first part."""
    documents = []
    for place in results:
        document: dict[str, Any] = {"run": str(place), "same": False}
        try:
            path, stored = _stored(place, out_folder)
            torch.set_num_threads(threads or _threads_of(stored))
            with (
                _folder_and_stop(out_folder) as (folder, stop),
                RunWatcher(stored.experiment.label, quiet=as_json, tells=False) as watcher,
            ):
                made = remake(
                    stored,
                    folder,
                    tasks_only=tasks_only,
                    trust_code=trust_code,
                    data=data,
                    device=device,
                    checkpoint_seconds=checkpoint_every,
                    watcher=watcher,
                    stop=stop,
                )
            noted = record_equivalence(path, stored, made.shown) if record and made.shown else None
            document |= {"label": stored.experiment.label, **_as_document(made), "noted": noted and str(noted)}
            if not as_json:
                _print(stored, made, noted)
        except FAILURES as error:
            document["error"] = str(error)
            if not as_json:
                err.print(f"{place}: {error}")
        documents.append(document)
    if as_json:
        print_json(documents)
    if not all(document["same"] for document in documents):
        raise typer.Exit(1)


def _stored(place: Path, out_folder: Path | None) -> tuple[Path, Result]:
    """Return the file of a stored result, and the result."""
    path = place / "result.json" if place.is_dir() else place
    if place.is_dir() and not path.exists():
        raise FileNotFoundError(
            "no result.json in it: name the folder of one finished run, its file, or results.jsonl#DIGEST"
        )
    if not split_place(path)[0].exists():
        raise FileNotFoundError("no such file: name the folder of one finished run, or its result.json")
    if out_folder is not None and path.resolve().is_relative_to(out_folder.resolve()):
        raise Refused(f"it is in {out_folder}, where the new run would go: use another --out")
    return path, read_result(path)


def _threads_of(stored: Result) -> int:
    """Return the threads that the stored run had, if this machine has as many processors; else 1."""
    told = stored.versions.get("threads", "1")
    return int(told) if told in map(str, range(1, (os.cpu_count() or 1) + 1)) else 1


@contextlib.contextmanager
def _folder_and_stop(out_folder: Path | None) -> Iterator[tuple[Path, Any]]:
    """Context manager: yield the folder for new runs and a callback that says when to stop."""
    if out_folder is not None:
        with stop_on_signal() as stop:
            yield out_folder, stop
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-remake-") as folder:
        yield Path(folder), lambda: False


def _as_document(made: Remake) -> dict[str, Any]:
    return {
        "same": made.is_same,
        "tasks": made.n_tasks,
        "of": made.of,
        "parting": None if made.parting is None else asdict(made.parting),
        "not_stored": list(made.not_stored),
        "unlike": {name: {"stored": stored, "now": now} for name, (stored, now) in made.unlike.items()},
    }


def _print(stored: Result, made: Remake, noted: Path | None) -> None:
    n_tasks = f"{made.n_tasks} of {made.of}" if made.n_tasks < made.of else str(made.of)
    tasks = f"{n_tasks} task{'' if made.of == 1 else 's'}"
    label = stored.experiment.label
    if made.is_same:
        out.print(f"{label}: comes out to the bit ({tasks})")
    else:
        out.print(f"{label}: parts at {made.parting}")
        out.print(f"  made {other_code(stored.code, stored.experiment) or 'with the same code'}")
        if made.unlike:
            told = [f"{name} {before or 'not recorded'}, now {now}" for name, (before, now) in made.unlike.items()]
            out.print(f"  bits depend on these too: {'; '.join(told)}")
    if made.not_stored:
        out.print(f"  not compared, since not stored: {', '.join(made.not_stored)}")
    if noted is not None:
        out.print(f"  noted in {noted}: the code of the stored run and today's are equivalent")
