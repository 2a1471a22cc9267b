"""`holdfast show`: stored results on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import Columns, Json, out, print_json


def show_command(
    path: Annotated[Path, typer.Argument(help="A run's folder, a folder of many, or results.jsonl#DIGEST.")] = Path(
        "runs"
    ),
    as_json: Json = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table in Markdown.")] = False,
    columns: Columns = "",
) -> None:
    """Print stored results: a table of many, or everything about one."""
    from holdfast.cli.tables import as_document, print_comparison, print_markdown, print_result
    from holdfast.experiments.results import results_at, split_place
    from holdfast.experiments.under_way import under_way

    if not split_place(path)[0].exists():
        raise FileNotFoundError(f"no results at {path}: name the folder of a run, or one that holds runs")
    results = results_at(path)
    if as_json:
        print_json([as_document(result, None) for result in results])
        return
    waiting = under_way(path)
    if not results and not waiting:
        raise FileNotFoundError(f"no finished run in {path}: 'holdfast run' makes one")
    if len(results) == 1 and not as_markdown and not columns:
        print_result(results[0])
    elif as_markdown:
        print_markdown(results, path, columns)
    else:
        print_comparison(results, path, columns)
    if waiting and not as_markdown:
        out.print(f"{len(waiting)} not finished:")
        for run in waiting:
            out.print(f"  {run.line}")
