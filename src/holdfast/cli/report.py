"""`holdfast report`: one page to look at, from stored results."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import folder_to_write


def report_command(
    runs: Annotated[Path, typer.Argument(help="A folder of results.")] = Path("runs"),
    out: Annotated[Path, typer.Option("--out", help="Folder of the page.", callback=folder_to_write)] = Path("report"),
    watch: Annotated[bool, typer.Option("--watch", help="Serve the page on this machine, following the runs.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of --watch; 0 takes a free one.")] = 8321,
) -> None:
    """Write one page that shows stored results: tables, curves, drift and memory; it needs no network."""
    from holdfast.experiments.results import write_text
    from holdfast.report.html_page import html_page
    from holdfast.report.page_data import page_data

    if not runs.is_dir():
        raise FileNotFoundError(f"no folder of results at {runs}: name one that holds runs")
    if watch:
        _serve(runs, port)
        return
    data = page_data(runs, base=out)
    for problem in [*data["problems"], *data["notes"]]:
        warnings.warn(problem, stacklevel=1)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "index.html"
    write_text(path, html_page(data))
    n_runs = sum(section["n_runs"] for section in data["sections"])
    typer.echo(f"{n_runs} {'run' if n_runs == 1 else 'runs'}, written to {path}")


def _serve(runs: Path, port: int) -> None:
    """Serve the page until Ctrl-C."""
    from holdfast.report.page_data import page_data
    from holdfast.report.watch import WatchedPage, make_server

    page = WatchedPage(lambda: page_data(runs, base=Path.cwd()), lambda: _state(runs))
    with make_server(page, port) as server:
        typer.echo(f"following {runs} at http://127.0.0.1:{server.server_port}/ until Ctrl-C")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("stopped")


def _state(runs: Path) -> list[tuple[str, int]]:
    """Return all files that tell of runs, with the time of their last change."""
    kinds = ("result.json", "results.jsonl", "experiment.json", "checkpoint.safetensors")
    found = [path for kind in kinds for path in runs.rglob(kind)]
    return sorted((str(path), path.stat().st_mtime_ns) for path in found if path.exists())
