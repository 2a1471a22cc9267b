"""Experiments, probes and ways of running that the options of a command ask for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

from holdfast.build import usable_device
from holdfast.cli.options import RunOptions, err
from holdfast.experiments.budget import flops_per_batch, in_real_time, with_delay, within_budget
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probing import make_probe, parse_logs, parse_probes
from holdfast.experiments.recipes import Recipe, Size, load_recipe, parse_changes
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import How
from holdfast.parts import Unknown
from holdfast.settings import Part


def sized_recipe(name: str, size: str) -> Recipe:
    """Return the recipe of a name or file, in a size."""
    return load_recipe(name).sized(cast(Size, size))


def all_changes(texts: list[str] | None, tasks: str | None, n_tasks: int | None) -> dict[str, Any]:
    """Return the changes of --set, --tasks and --n-tasks together."""
    changes = parse_changes(texts or [])
    if tasks is not None:
        changes["stream.tasks"] = tasks
    if n_tasks is not None:
        changes["stream.n_tasks"] = n_tasks
    return changes


def all_probes(texts: list[str] | None, logs: list[str] | None) -> tuple[Part, ...]:
    """Return the probes that --probe and --log ask for, all of which can be made."""
    probes = (*parse_probes(texts or []), *parse_logs(logs or []))
    for part in probes:
        make_probe(part)
    return probes


class Terms(NamedTuple):
    """Terms that --budget, --real-time and --label-delay ask for; each is left open if it is empty or 0."""

    budget: str
    real_time: str
    label_delay: int


def on_terms(
    terms: Terms, experiments: list[Experiment], recipe: Recipe, changes: dict[str, Any], data: Path | None
) -> list[Experiment]:
    """Return the experiments on these terms, and print what was changed for them."""
    budget, real_time, label_delay = terms
    if budget and real_time:
        raise Unknown("--budget and --real-time are two ways to equal terms: give one")
    if budget or real_time:
        fit = within_budget if budget else in_real_time
        flops = _flops_of(budget or real_time, recipe, experiments[0].seed, changes, data)
        fitted = [fit(experiment, flops, data) for experiment in experiments]
        for sentence in dict.fromkeys(each.said for each in fitted):
            err.print(sentence)
        experiments = [each.experiment for each in fitted]
    if label_delay:
        experiments = [with_delay(experiment, label_delay) for experiment in experiments]
    return experiments


def _flops_of(text: str, recipe: Recipe, seed: int, changes: dict[str, Any], data: Path | None) -> float:
    """Return the operations of a batch that '6.5', in GFLOP, or a row like 'er' stands for."""
    try:
        flops = 1e9 * float(text)
    except ValueError:
        return flops_per_batch(recipe.experiment(text, seed=seed, changes=changes), data)
    if not 0 < flops < math.inf:
        raise Unknown(f"a budget of {text} GFLOP a batch is none: give a number above 0, or a row")
    return flops


class Asked(NamedTuple):
    """Experiments that a command asks for, the place of their results, and the arguments of each run."""

    experiments: list[Experiment]
    store: ResultStore
    how: How


def asked_for(recipe: Recipe, rows: Iterable[str], seeds: Iterable[int | None], options: RunOptions) -> Asked:
    """Return each row with each of the seeds, on the terms of the options, all of which can be used."""
    changes = all_changes(options.changes, options.tasks, options.n_tasks)
    experiments = [recipe.experiment(row, seed=seed, changes=changes) for seed in seeds for row in rows]
    terms = Terms(options.budget, options.real_time, options.label_delay)
    experiments = on_terms(terms, experiments, recipe, changes, options.data)
    usable_device(options.device)
    how = How(
        data=options.data,
        device=options.device,
        checkpoint_seconds=options.checkpoint_every,
        record=options.record,
        probes=all_probes(options.probe, options.log),
        continue_anyway=options.continue_anyway,
    )
    return Asked(experiments, ResultStore(options.out_folder), how)
