"""`holdfast run` and `holdfast compare`: runs one after the other."""

from __future__ import annotations

from holdfast.cli.options import (
    Columns,
    Fresh,
    Method,
    Methods,
    OneSeed,
    RecipeName,
    RunOptions,
    Seeds,
    Threads,
    out,
    parse_rows,
    parse_seeds,
    print_json,
    with_run_options,
)


@with_run_options
def run_command(
    recipe: RecipeName,
    method: Method = "er",
    seed: OneSeed = None,
    threads: Threads = 1,
    fresh: Fresh = False,
    *,
    options: RunOptions,
) -> None:
    """Learn one stream with one method; a run that was killed goes on where it was."""
    import torch

    from holdfast.cli.asked import asked_for, sized_recipe
    from holdfast.cli.plan import print_plan
    from holdfast.cli.progress import run_all
    from holdfast.cli.tables import as_document, summary

    torch.set_num_threads(threads)
    experiments, store, how = asked_for(sized_recipe(recipe, options.size), [method], [seed], options)
    if options.dry_run:
        print_plan(experiments, store, fresh=fresh, as_json=options.as_json)
        return
    (result,) = run_all(experiments, store, fresh=fresh, quiet=options.quiet or options.as_json, **how)
    folder = store.folder(result.experiment)
    if options.as_json:
        print_json(as_document(result, folder))
    else:
        out.print(f"{summary(result)}\nwritten to {folder}")


@with_run_options
def compare_command(
    recipe: RecipeName = "permuted_digits",
    methods: Methods = "",
    seeds: Seeds = "1234",
    threads: Threads = 1,
    fresh: Fresh = False,
    columns: Columns = "",
    *,
    options: RunOptions,
) -> None:
    """Learn one stream with several methods and seeds, and print a table."""
    import torch

    from holdfast.cli.asked import asked_for, sized_recipe
    from holdfast.cli.plan import print_plan
    from holdfast.cli.progress import run_all
    from holdfast.cli.tables import as_document, print_comparison

    torch.set_num_threads(threads)
    loaded = sized_recipe(recipe, options.size)
    rows = parse_rows(methods) if methods else loaded.compare
    experiments, store, how = asked_for(loaded, rows, parse_seeds(seeds), options)
    if options.dry_run:
        print_plan(experiments, store, fresh=fresh, as_json=options.as_json)
        return
    results = run_all(experiments, store, fresh=fresh, quiet=options.quiet or options.as_json, **how)
    if options.as_json:
        print_json([as_document(result, store.folder(result.experiment)) for result in results])
        return
    print_comparison(results, options.out_folder, columns)
    out.print(f"written to {options.out_folder / loaded.name}")
