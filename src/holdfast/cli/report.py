"""`holdfast report`: one page to look at, from stored results."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from holdfast.experiments.results import write_text
from holdfast.report.html_page import html_page
from holdfast.report.page_data import page_data


def report_command(
    runs: Annotated[Path, typer.Argument(help="A folder of results.")] = Path("runs"),
    out: Annotated[Path, typer.Option("--out", help="The folder that the page goes to.")] = Path("report"),
) -> None:
    """Write one page that shows stored results: tables, curves, drift and memory; it needs no network."""
    if not runs.is_dir():
        raise FileNotFoundError(f"no folder of results at {runs}: name one that holds runs")
    data = page_data(runs, base=out)
    for problem in [*data["problems"], *data["notes"]]:
        warnings.warn(problem, stacklevel=1)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "index.html"
    write_text(path, html_page(data))
    n_runs = sum(section["n_runs"] for section in data["sections"])
    typer.echo(f"{n_runs} {'run' if n_runs == 1 else 'runs'}, written to {path}")
