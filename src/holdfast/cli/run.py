"""`holdfast run` and `holdfast compare`: runs one after the other."""

from __future__ import annotations

from pathlib import Path

from holdfast.cli.options import (
    Budget,
    Changes,
    Columns,
    ContinueAnyway,
    Data,
    Device,
    DryRun,
    Every,
    Fresh,
    Json,
    Keep,
    LabelDelay,
    Logs,
    Measures,
    Method,
    Methods,
    NTasks,
    OneSeed,
    OutFolder,
    Quiet,
    RealTime,
    RecipeName,
    Seeds,
    SizeName,
    Subset,
    Threads,
    out,
    parse_seeds,
    print_json,
)


def run_command(
    recipe: RecipeName,
    method: Method = "er",
    seed: OneSeed = None,
    size: SizeName = "full",
    changes: Changes = None,
    tasks: Subset = None,
    n_tasks: NTasks = None,
    budget: Budget = "",
    real_time: RealTime = "",
    label_delay: LabelDelay = 0,
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
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Learn one stream with one method; a run that was killed goes on where it was."""
    import torch

    from holdfast.cli.asked import Terms, all_changes, on_terms, sized_recipe, way_to_run
    from holdfast.cli.plan import print_plan
    from holdfast.cli.progress import run_all
    from holdfast.cli.tables import as_document, summary
    from holdfast.experiments.results import ResultStore

    torch.set_num_threads(threads)
    loaded, asked = sized_recipe(recipe, size), all_changes(changes, tasks, n_tasks)
    terms = Terms(budget, real_time, label_delay)
    (experiment,) = on_terms(terms, [loaded.experiment(method, seed=seed, changes=asked)], loaded, asked, data)
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
        print_plan([experiment], store, fresh=fresh, as_json=as_json)
        return
    (result,) = run_all([experiment], store, fresh=fresh, quiet=quiet or as_json, **how)
    folder = store.folder(experiment)
    if as_json:
        print_json(as_document(result, folder))
    else:
        out.print(f"{summary(result)}\nwritten to {folder}")


def compare_command(
    recipe: RecipeName = "permuted_digits",
    methods: Methods = "",
    seeds: Seeds = "1234",
    size: SizeName = "full",
    changes: Changes = None,
    tasks: Subset = None,
    n_tasks: NTasks = None,
    budget: Budget = "",
    real_time: RealTime = "",
    label_delay: LabelDelay = 0,
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
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Learn one stream with several methods and seeds, and print a table."""
    import torch

    from holdfast.cli.asked import Terms, all_changes, all_experiments, on_terms, sized_recipe, way_to_run
    from holdfast.cli.plan import print_plan
    from holdfast.cli.progress import run_all
    from holdfast.cli.tables import as_document, print_comparison
    from holdfast.experiments.results import ResultStore

    torch.set_num_threads(threads)
    loaded = sized_recipe(recipe, size)
    rows = methods.split(",") if methods else loaded.compare
    asked = all_changes(changes, tasks, n_tasks)
    experiments = all_experiments(loaded, rows, parse_seeds(seeds), asked)
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
        print_plan(experiments, store, fresh=fresh, as_json=as_json)
        return
    results = run_all(experiments, store, fresh=fresh, quiet=quiet or as_json, **how)
    if as_json:
        print_json([as_document(result, store.folder(result.experiment)) for result in results])
        return
    print_comparison(results, out_folder, columns)
    out.print(f"written to {out_folder / loaded.name}")
