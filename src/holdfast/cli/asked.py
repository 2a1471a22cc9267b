"""Experiments, probes and ways of running that the options of a command ask for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from holdfast.build import usable_device
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probing import make_probe, parse_logs, parse_probes
from holdfast.experiments.recipes import Recipe, Size, load_recipe, parse_changes
from holdfast.experiments.run import How
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


def all_experiments(
    recipe: Recipe, rows: Iterable[str], seeds: Iterable[int], changes: dict[str, Any]
) -> list[Experiment]:
    """Return each row with each of the seeds."""
    return [recipe.experiment(row.strip(), seed=seed, changes=changes) for seed in seeds for row in rows]


def way_to_run(
    data: Path | None,
    device: str,
    *,
    checkpoint_every: float,
    record: bool,
    probe: list[str] | None,
    log: list[str] | None,
    continue_anyway: bool,
) -> How:
    """Return the arguments of a run that --data, --device, --record and others state, all of which can be used."""
    usable_device(device)
    return How(
        data=data,
        device=device,
        checkpoint_seconds=checkpoint_every,
        record=record,
        probes=all_probes(probe, log),
        continue_anyway=continue_anyway,
    )
