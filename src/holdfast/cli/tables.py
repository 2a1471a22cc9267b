"""Results as tables on a terminal, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.cli.options import out, print_table
from holdfast.experiments.equivalent import read_equivalences
from holdfast.experiments.protocol import by_protocol
from holdfast.experiments.results import Result
from holdfast.experiments.tables import (
    code_notes,
    compared,
    comparison,
    drift_rows,
    matrix_rows,
    parse_columns,
    unlike,
)

CHOOSE = "--columns chooses; a wider window shows all"


def print_comparison(results: list[Result], folder: Path, columns: str = "") -> None:
    """Print a table for each protocol, and below it what differs between its rows and the code of their runs.

    Args:
        folder: of the results, which may say what code is equivalent.
        columns: of the tables, with commas between; by default the usual ones.
    """
    same = read_equivalences([folder])
    chosen = parse_columns(columns) if columns else []
    for protocol, group in by_protocol(results).items():
        print_table(protocol.heading, *comparison(group, same, chosen), advice=CHOOSE)
        for line in [*unlike(group), *code_notes(group, same)]:
            out.print(f"  {line}")
        out.print()


def print_markdown(results: list[Result], folder: Path, columns: str = "") -> None:
    """Print the tables of `print_comparison` in Markdown."""
    same = read_equivalences([folder])
    chosen = parse_columns(columns) if columns else []
    for protocol, group in by_protocol(results).items():
        out.print(f"{compared(protocol.heading, group, same, chosen)}\n")


def print_result(result: Result) -> None:
    """Print everything about one run."""
    experiment = result.experiment
    out.print(f"{experiment.label} ({experiment.digest})")
    for name, value in experiment.model_dump(mode="json").items():
        out.print(f"  {name:<13}{json.dumps(value)}")
    out.print(f"  {'versions':<13}{json.dumps(result.versions)}")
    out.print(f"  {'memory used':<13}{result.memory_samples:,} samples, {result.memory_bytes:,} bytes")
    if kept := result.footprint:
        terms = ", ".join(f"{name} {n_bytes / 1e6:.2f}" for name, n_bytes in kept)
        out.print(f"  {'kept in all':<13}{kept.total / 1e6:.1f} MB: {terms}")
    print_table("accuracy (%) on each task, a row after each task learned", *matrix_rows(result))
    if result.moved:
        print_table("drift of held-out features, in units of their spread", *drift_rows(result))
    out.print(summary(result))


def summary(result: Result) -> str:
    """Return the numbers of one run in one line."""
    header, ((name, *values),) = comparison([result])
    pairs = [f"{label} {value}" for label, value in zip(header[1:], values, strict=True) if value != "-"]
    return f"{name}: {', '.join(pairs)}"


def as_document(result: Result, folder: Path | None) -> dict[str, Any]:
    """Return a result and what follows from it, as JSON."""
    document = {"metrics": result.metrics, **result.model_dump(mode="json")}
    return document if folder is None else {"folder": str(folder), **document}
