"""`holdfast sweep`: all rows and seeds of a recipe at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import (
    AllMethods,
    AllSeeds,
    Columns,
    RecipeName,
    RunOptions,
    err,
    out,
    parse_rows,
    parse_seeds,
    print_json,
    with_run_options,
)

if TYPE_CHECKING:
    from holdfast.experiments.results import ResultStore
    from holdfast.experiments.sweep import Failure

Workers = Annotated[int | None, typer.Option(min=1, help="Number of runs at once; by default one per processor.")]
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS|auto|local", help="A Ray cluster to run on.")]


@with_run_options
def sweep_command(
    recipe: RecipeName,
    methods: AllMethods = "",
    seeds: AllSeeds = "",
    workers: Workers = None,
    ray: Ray = None,
    columns: Columns = "",
    *,
    options: RunOptions,
) -> None:
    """Learn one stream with all rows and seeds of a recipe at once, and print a table; started again, it goes on."""
    from holdfast.cli.asked import asked_for, sized_recipe
    from holdfast.cli.plan import print_plan
    from holdfast.cli.sweeping import run_at_once
    from holdfast.cli.tables import as_document, print_comparison
    from holdfast.experiments.sweep import count_processors

    loaded = sized_recipe(recipe, options.size)
    rows = parse_rows(methods) if methods else list(loaded.rows) or loaded.compare  # of a stream's own name no rows
    experiments, store, how = asked_for(loaded, rows, parse_seeds(seeds) if seeds else loaded.seeds, options)
    if options.dry_run:
        n_workers = workers or (1 if ray else count_processors())
        print_plan(experiments, store, n_workers=n_workers, as_json=options.as_json)
        return
    report = run_at_once(experiments, store, workers=workers, ray=ray, quiet=options.quiet or options.as_json, **how)
    if options.as_json:
        results = [as_document(result, store.folder(result.experiment)) for result in report.results]
        failed = [_failed_as_json(failure, store) for failure in report.failures]
        print_json({"results": results, "failed": failed})
    else:
        if report.results:
            print_comparison(report.results, options.out_folder, columns)
        out.print(f"written to {options.out_folder / loaded.name}")
    if report.failures:
        err.print(f"{len(report.failures)} of {len(report.results) + len(report.failures)} runs failed:")
        for failure in report.failures:
            err.print(f"  {failure.experiment.label}: {failure.reason}")
        raise typer.Exit(1)


def _failed_as_json(failure: Failure, store: ResultStore) -> dict[str, Any]:
    return {
        "folder": str(store.folder(failure.experiment)),
        "reason": failure.reason,
        "experiment": failure.experiment.model_dump(mode="json"),
    }
