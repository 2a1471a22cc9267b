"""`holdfast sweep`: all rows and seeds of a recipe at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import (
    AllMethods,
    AllSeeds,
    Budget,
    Changes,
    Columns,
    ContinueAnyway,
    Data,
    Device,
    DryRun,
    Every,
    Json,
    Keep,
    LabelDelay,
    Logs,
    Measures,
    NTasks,
    OutFolder,
    Quiet,
    RealTime,
    RecipeName,
    SizeName,
    Subset,
    err,
    out,
    parse_seeds,
    print_json,
)

if TYPE_CHECKING:
    from holdfast.experiments.results import ResultStore
    from holdfast.experiments.sweep import Failure

Workers = Annotated[int | None, typer.Option(min=1, help="Number of runs at once; else one for each processor.")]
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS|auto|local", help="A Ray cluster to run on.")]


def sweep_command(
    recipe: RecipeName,
    methods: AllMethods = "",
    seeds: AllSeeds = "",
    size: SizeName = "full",
    changes: Changes = None,
    tasks: Subset = None,
    n_tasks: NTasks = None,
    budget: Budget = "",
    real_time: RealTime = "",
    label_delay: LabelDelay = 0,
    workers: Workers = None,
    ray: Ray = None,
    out_folder: OutFolder = Path("runs"),
    data: Data = None,
    device: Device = "cpu",
    checkpoint_every: Every = 60,
    continue_anyway: ContinueAnyway = False,
    record: Keep = False,
    probe: Measures = None,
    log: Logs = None,
    columns: Columns = "",
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Learn one stream with all rows and seeds of a recipe at once, and print a table; started again, it goes on."""
    from holdfast.cli.asked import Terms, all_changes, all_experiments, on_terms, sized_recipe, way_to_run
    from holdfast.cli.plan import print_plan
    from holdfast.cli.sweeping import run_at_once
    from holdfast.cli.tables import as_document, print_comparison
    from holdfast.experiments.results import ResultStore
    from holdfast.experiments.sweep import count_processors

    loaded = sized_recipe(recipe, size)
    rows = methods.split(",") if methods else list(loaded.rows) or loaded.compare  # of a stream's own name no rows
    chosen_seeds = parse_seeds(seeds) if seeds else loaded.seeds
    asked = all_changes(changes, tasks, n_tasks)
    experiments = all_experiments(loaded, rows, chosen_seeds, asked)
    experiments = on_terms(Terms(budget, real_time, label_delay), experiments, loaded, asked, data)
    store = ResultStore(out_folder)
    how = way_to_run(
        data,
        device,
        checkpoint_every=checkpoint_every,
        record=record,
        probe=probe,
        log=log,
        continue_anyway=continue_anyway,
    )
    if dry_run:
        n_workers = workers or (1 if ray else count_processors())
        print_plan(experiments, store, n_workers=n_workers, as_json=as_json)
        return
    report = run_at_once(experiments, store, workers=workers, ray=ray, quiet=quiet or as_json, **how)
    if as_json:
        results = [as_document(result, store.folder(result.experiment)) for result in report.results]
        failed = [_failed_as_json(failure, store) for failure in report.failures]
        print_json({"results": results, "failed": failed})
    else:
        if report.results:
            print_comparison(report.results, out_folder, columns)
        out.print(f"written to {out_folder / loaded.name}")
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
