"""`--dry-run`: which runs there would be, which of them are finished, and how long the others are expected to take."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.cli.options import out, print_json, print_table
from holdfast.experiments.durations import Known, expected_seconds, seconds_until_done, size_of
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.under_way import UnderWay, duration, under_way


@dataclass(frozen=True)
class Planned:
    """A run that was asked for.

    Attributes:
        state: 'running' if another process has it now, 'begun' if it would go on from a checkpoint.
        seconds: that it is still expected to take; None if no run tells.
    """

    experiment: Experiment
    state: Literal["finished", "running", "begun", "new"]
    seconds: float | None
    so_far: UnderWay | None = None

    @property
    def told(self) -> str:
        """State in words."""
        if self.state == "finished":
            return "finished before"
        if self.so_far is not None and self.so_far.step is not None and self.so_far.n_steps is not None:
            return f"{self.state}, step {self.so_far.step:,} of {self.so_far.n_steps:,}"
        return self.state


def planned(
    experiments: Sequence[Experiment], store: ResultStore, *, others: Sequence[Result] = (), fresh: bool = False
) -> list[Planned]:
    """Return what would be done for each of the `experiments`; nothing is written.

    Args:
        others: results that are not in the store, and tell how long runs take.
    """
    distinct = list({experiment.path: experiment for experiment in experiments}.values())
    known: list[Known] = list(map(_known, others))
    begun: dict[str, UnderWay] = {}
    with warnings.catch_warnings(action="ignore"):  # what is damaged tells no time, and is no matter here
        for benchmark in {experiment.benchmark for experiment in distinct}:
            known += map(_known, ResultStore(store.root / benchmark).results())
            begun |= {str(run.folder): run for run in under_way(store.root / benchmark)}
    found = []
    for experiment in distinct:
        so_far = None if fresh else begun.get(str(store.folder(experiment)))
        if not fresh and store.find(experiment) is not None:
            found.append(Planned(experiment, "finished", 0.0))
            continue
        seconds = expected_seconds(size_of(experiment), known)
        if so_far is None:
            found.append(Planned(experiment, "new", seconds))
            continue
        if seconds is not None and so_far.step is not None and so_far.n_steps:
            seconds *= 1 - so_far.step / so_far.n_steps
        found.append(Planned(experiment, "running" if so_far.running else "begun", seconds, so_far))
    return found


def _known(result: Result) -> Known:
    return size_of(result.experiment), result.seconds + result.seconds_testing


def print_plan(
    experiments: Sequence[Experiment],
    store: ResultStore,
    *,
    others: Sequence[Result] = (),
    fresh: bool = False,
    n_workers: int = 1,
    as_json: bool = False,
) -> None:
    """Print what would be done for each of the `experiments`, and how long all would take."""
    runs = planned(experiments, store, others=others, fresh=fresh)
    if as_json:
        print_json([_as_document(run, store) for run in runs])
        return
    if runs:
        print_table("", ["run", "state", "expected"], [[run.experiment.label, run.told, _length(run)] for run in runs])
    out.print(f"{_counts(runs)}; {_whole(runs, n_workers)}. Nothing was run.")


def _length(run: Planned) -> str:
    if run.state == "finished":
        return ""
    return "not known" if run.seconds is None else _about(run.seconds)


def _about(seconds: float) -> str:
    return "under 1 s" if seconds < 1 else f"about {duration(seconds)}"


def _counts(runs: Sequence[Planned]) -> str:
    states = [run.state for run in runs]
    told = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}" + (f": {told}" if told else "")


def _whole(runs: Sequence[Planned], n_workers: int) -> str:
    waiting = [run.seconds for run in runs if run.state in ("begun", "new")]
    if not waiting:
        return "nothing is left to do"
    known = [seconds for seconds in waiting if seconds is not None]
    if len(known) < len(waiting):
        return "how long they take is not known before a run of the same stream is finished"
    at_once = "one after the other" if n_workers == 1 else f"{n_workers} at once"
    return f"{_about(seconds_until_done([], known, n_workers))} {at_once}"


def _as_document(run: Planned, store: ResultStore) -> dict[str, object]:
    return {
        "folder": str(store.folder(run.experiment)),
        "state": run.state,
        "expected_seconds": None if run.state == "finished" else run.seconds,
        "experiment": run.experiment.model_dump(mode="json"),
    }
