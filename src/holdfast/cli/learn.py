"""`holdfast learn` and `holdfast predict`: a table, row by row."""

from __future__ import annotations

import contextlib
import csv
import io
import shlex
import signal
import sys
import time
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO

import torch
import typer
from rich.live import Live
from rich.text import Text

from holdfast.cli.options import Threads, err, out
from holdfast.columns import BadRow
from holdfast.core.atomic import replacing
from holdfast.data.rows import Row, read_rows
from holdfast.report.rendering import for_spreadsheets
from holdfast.report.stream_page import StreamFacts, stream_page
from holdfast.tables import TableLearner, load_table_learner

Source = Annotated[
    str,
    typer.Argument(metavar="DATA", help="A .csv, .tsv, .jsonl, .npz or .parquet file, a folder of pictures, or '-'."),
]
Skip = Annotated[bool, typer.Option("--skip-bad-rows", help="Report bad rows and continue, instead of stopping.")]
Size = Annotated[int, typer.Option(min=1, help="Side of a picture in pixels, after resizing.")]
SHOWN = 4  # classes in the live line
SAY_EVERY = 10.0  # seconds, where the line cannot be written over
WARNED = 20  # bad rows that are named; the others are counted


def learn_command(
    source: Source,
    label: Annotated[str, typer.Option(help="Column of the label; for a folder of pictures, any name.")] = "label",
    out_file: Annotated[Path, typer.Option("--out", help="File of the learner.")] = Path("learner.holdfast"),
    method: Annotated[str | None, typer.Option(help="Name of a method; by default one that fits the data.")] = None,
    memory: Annotated[str, typer.Option(help="Samples, or bytes as '5 MB'.")] = "1000",
    batch: Annotated[int, typer.Option(min=1, help="Rows that are learned at once.")] = 10,
    drop: Annotated[str, typer.Option(help="Columns to leave out, separated by commas.")] = "",
    weight: Annotated[str | None, typer.Option(help="Column with the weight of each row.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and memory.")] = 0,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="Resume: load --out, and skip the rows that it has read.")
    ] = False,
    skip: Skip = False,
    size: Size = 64,
    threads: Threads = 1,
    save_every: Annotated[
        float, typer.Option(min=0, help="Seconds between two saves, so that a killed command can go on.")
    ] = 60.0,
) -> None:
    """Learn a table in its order; each row is predicted before it is learned."""
    torch.set_num_threads(threads)
    if out_file.exists() and not go_on:
        raise ValueError(f"{out_file} exists: go on with --go-on, or save to another file with --out")
    if go_on:
        learner = load_table_learner(out_file)
        if learner.label != label:
            raise ValueError(f"{out_file} learned the column '{learner.label}', not '{label}': give --label of before")
        if weight not in (None, learner.weight):
            raise ValueError(f"{out_file} learned with the weights '{learner.weight}': leave --weight out")
    else:
        dropped = [name for name in drop.split(",") if name]
        settings = {"memory": int(memory) if memory.isdigit() else memory, "seed": seed}
        learner = TableLearner(label, method=method, batch=batch, drop=dropped, weight=weight, **settings)
    n_before = learner.n_rows
    out.print(f"learning {source}, column '{label}', into {out_file}" + (f", from row {n_before}" if n_before else ""))
    started = time.monotonic()
    again = shlex.join(["holdfast", "learn", source, "--label", label, "--out", str(out_file), "--go-on"])
    with _Stop() as stop, contextlib.closing(_read(source, label, size)) as read:
        rows = read if source == "-" else islice(read, n_before, None)  # nothing that was read comes again on '-'
        try:
            _learn_all(learner, rows, stop, _Saving(learner, out_file, save_every), skip=skip)
        except BadRow as error:
            if not learner.accuracy.n:
                raise
            learner.save(out_file)
            raise BadRow(
                f"{error}. {learner.n_rows:,} rows were learned and saved in {out_file}: mend the row and go on with "
                f"'{again}', or add --skip-bad-rows"
            ) from error
        seconds = time.monotonic() - started
        if not learner.accuracy.n:
            raise ValueError(f"{source} has no row that can be learned")
        learner.save(out_file)
    page = out_file.with_suffix(".html")
    with replacing(page) as file:
        file.write(stream_page(_facts(learner, source, (learner.n_rows - n_before) / max(seconds, 1e-9))).encode())
    found = learner.accuracy
    out.print(
        f"{learner.n_rows:,} rows ({learner.n_bad:,} bad), accuracy {100 * found.whole:.2f} %, of the last "
        f"{len(found.last):,} {100 * found.window:.2f} %, {len(found.alarms)} alarms; saved {out_file} and {page}"
    )
    if stop.asked:
        out.print(f"stopped: go on with '{again}'")


def _read(source: str, label: str, size: int) -> Generator[Row, None, None]:
    """Return the rows of a file or of standard input; to be closed, since an error keeps the file open otherwise."""
    return read_rows(source, label=label, size=size, standard_input=sys.stdin)


def predict_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A learner that 'holdfast learn' saved.")],
    source: Source,
    out_file: Annotated[Path | None, typer.Option("--out", help="A CSV file; by default standard output.")] = None,
    probability: Annotated[
        bool, typer.Option("--probability", help="Add a column with the probability of the label.")
    ] = False,
    skip: Skip = False,
    size: Size = 64,
    threads: Threads = 1,
) -> None:
    """Predict the label of each row of a table: CSV with the place of the row and its label.

    Rows of standard input are answered one by one. A text that a spreadsheet would calculate has a ' before it.
    """
    torch.set_num_threads(threads)
    learner = load_table_learner(model)
    if out_file is None:
        _predict(learner, source, sys.stdout, probability=probability, skip=skip, size=size)
        return
    with replacing(out_file) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        try:
            _predict(learner, source, text, probability=probability, skip=skip, size=size)
        finally:
            text.detach()  # which writes what is left, and leaves the file open
    out.print(f"wrote {out_file}")


def _predict(learner: TableLearner, source: str, file: TextIO, *, probability: bool, skip: bool, size: int) -> None:
    """Write a line for each row of `source`."""
    writer = csv.writer(file)
    writer.writerow([for_spreadsheets(name) for name in ["row", learner.label, *["probability"][: int(probability)]]])
    bad = _BadRows(learner, skip=skip)
    with contextlib.closing(_read(source, learner.label, size)) as read:
        for rows in _batches(read, 1 if source == "-" else 128):
            good = bad.sorted_out(rows, with_label=False)
            for row, answer in zip(good, _answers(learner, good, probability=probability), strict=True):
                writer.writerow([for_spreadsheets(cell) for cell in (row.where, *answer)])
            file.flush()


def _answers(learner: TableLearner, rows: list[Row], *, probability: bool) -> list[tuple[Any, ...]]:
    """Return for each row its label and, if asked for, the probability of it."""
    if not rows:
        return []
    x = learner.inputs([row.values for row in rows])
    if not probability:
        return [(label,) for label in learner.labels.of(learner.learner.predict(x).tolist())]
    p, classes = learner.learner.predict_proba(x).max(dim=1)
    return list(zip(learner.labels.of(classes.tolist()), p.tolist(), strict=True))


class _Saving:
    """Saves a learner from time to time."""

    def __init__(self, learner: TableLearner, path: Path, every: float) -> None:
        self.learner, self.path, self.every = learner, path, every
        self.saved = time.monotonic()

    def after_batch(self) -> None:
        """Save if that is due."""
        if time.monotonic() - self.saved >= self.every:
            self.learner.save(self.path)
            self.saved = time.monotonic()


class _Stop:
    """Context manager: Ctrl-C and SIGTERM end the reading of rows, and never a step of the learner."""

    def __init__(self) -> None:
        self.asked = self.waiting = False

    def __enter__(self) -> _Stop:
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, *_: object) -> None:
        self.asked = True
        if self.waiting:
            raise KeyboardInterrupt

    def read(self, rows: Iterator[Row], size: int) -> list[Row]:
        """Return the next rows; fewer than `size` at their end, or when a signal came."""
        some: list[Row] = []
        with contextlib.suppress(KeyboardInterrupt):
            try:
                self.waiting = not self.asked
                while len(some) < size and not self.asked and (row := next(rows, None)) is not None:
                    some.append(row)
            finally:
                self.waiting = False
        return some


def _learn_all(learner: TableLearner, rows: Iterator[Row], stop: _Stop, saving: _Saving, *, skip: bool) -> None:
    """Learn rows until they end or a signal comes, with a line that says how it goes."""
    bad, started, n_first = _BadRows(learner, skip=skip), time.monotonic(), learner.n_rows
    said = started
    with Live(Text(""), console=err, refresh_per_second=4, transient=True, redirect_stdout=False) as live:
        while some := stop.read(rows, learner.batch):
            good = bad.sorted_out(some, with_label=True)
            learner.skip(len(some) - len(good))
            if good:
                learner.observe([row.values for row in good], [row.where for row in good])
                saving.after_batch()
            now = time.monotonic()
            line = _line(learner, (learner.n_rows - n_first) / max(now - started, 1e-9))
            live.update(Text(line))
            if not err.is_terminal and now - said > SAY_EVERY:
                err.print(line)
                said = now


class _BadRows:
    """Rows that cannot be used: the first one stops the command, or they are skipped, and WARNED of them named."""

    def __init__(self, learner: TableLearner, *, skip: bool) -> None:
        self.learner, self.skip, self.n_skipped = learner, skip, 0

    def sorted_out(self, rows: list[Row], *, with_label: bool) -> list[Row]:
        """Return the rows that can be used."""
        good = []
        for row in rows:
            try:
                if row.wrong is not None:
                    raise BadRow(f"{row.where}: {row.wrong}")
                self.learner.check(row.values, row.where, with_label=with_label)
                good.append(row)
            except BadRow as error:
                if not self.skip:
                    raise
                self._name(error)
        return good

    def _name(self, error: BadRow) -> None:
        if self.n_skipped < WARNED:
            err.print(f"skipped {error}")
        elif self.n_skipped == WARNED:
            err.print("more bad rows are skipped and counted, but not named")
        self.n_skipped += 1


def _batches(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    while some := list(islice(rows, size)):
        yield some


def _line(learner: TableLearner, rate: float) -> str:
    """Return the live line: "row 1,200 | 81.2 % of all, 84.0 % of the last 1,000, 83.9 % faded | …"."""
    found = learner.accuracy
    by_class = sorted(enumerate(found.by_class), key=lambda each: -each[1][1])[:SHOWN]
    classes = ", ".join(f"{learner.labels.known[c]} {100 * right / max(n, 1):.0f}" for c, (right, n) in by_class)
    return (
        f"row {learner.n_rows:,} | {100 * found.whole:.1f} % of all, {100 * found.window:.1f} % of the last "
        f"{len(found.last):,}, {100 * found.faded:.1f} % faded | {classes} | {len(found.alarms)} alarms | "
        f"{rate:,.0f} rows a second"
    )


def _facts(learner: TableLearner, source: str, rate: float) -> StreamFacts:
    found, memory = learner.accuracy, learner.learner.memory
    is_raw = learner.learner.method.model.scaling is None
    stored = [] if memory is None else torch.bincount(memory.y.cpu(), minlength=len(learner.labels)).tolist()
    return {
        "title": f"{source}, column {learner.label}",
        "facts": {
            "method": learner.learner.settings.method.name,
            "inputs standardised": "not by the learner" if is_raw else "by the learner",
            "rows": f"{learner.n_rows:,}, of which {learner.n_bad:,} were bad and left out",
            "accuracy of all rows": f"{100 * found.whole:.2f} %",
            f"of the last {len(found.last):,}": f"{100 * found.window:.2f} %",
            "faded": f"{100 * found.faded:.2f} %",
            "rows a second": f"{rate:,.0f}",
            "memory": "none" if memory is None else f"{len(memory):,} samples, {memory.nbytes:,} bytes",
        },
        "curve": found.curve,
        "by_class": {
            str(label): (found.by_class[c][0], found.by_class[c][1], stored[c] if c < len(stored) else 0)
            for c, label in enumerate(learner.labels.known)
        },
        "alarms": found.alarms,
    }
