"""Experiments run at once, with a table of how they stand while they run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Unpack

from rich.console import Group
from rich.live import Live
from rich.text import Text

from holdfast.cli.options import err, fitted_table, out, stop_on_signal
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.ray_sweep import ray_sweep
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import How
from holdfast.experiments.sweep import Job, SweepReport, sweep


def run_at_once(
    experiments: list[Experiment],
    store: ResultStore,
    *,
    workers: int | None,
    ray: str | None = None,
    quiet: bool,
    **how: Unpack[How],
) -> SweepReport:
    """Sweep `experiments` and show how they stand; Ctrl-C saves those that run and ends the program."""
    start = sweep if ray is None else partial(ray_sweep, address=ray)
    with stop_on_signal() as stop, _Watcher(quiet=quiet) as watcher:
        return start(experiments, store, workers=workers, watcher=watcher, stop=stop, **how)


class _Watcher:
    """On a terminal a table that changes, with what happens above it; elsewhere a line for all that happens."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.live = Live(console=err, transient=True, refresh_per_second=4) if err.is_terminal and not quiet else None
        self.n_done = 0

    def __enter__(self) -> _Watcher:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def said(self, job: Job, text: str) -> None:
        self._print(f"{job.experiment.label}: {text}")

    def showed(self, jobs: Sequence[Job], seconds_left: float | None) -> None:
        n_done = sum(not job.is_open for job in jobs)
        if self.live:
            self.live.update(_overview(jobs, seconds_left))
        elif n_done > self.n_done:
            self._print(_counts(jobs, seconds_left))
        self.n_done = n_done

    def stopping(self) -> None:
        self._print("stopping: runs save where they are (once more to end at once)")

    def _print(self, text: str) -> None:
        if not self.quiet:
            (err if self.live else out).print(text)


def _overview(jobs: Sequence[Job], seconds_left: float | None) -> Group:
    rows = []
    for job in jobs:
        if (moment := job.moment) is None:
            continue
        per_step = job.seconds_per_step
        rows.append(
            [
                job.experiment.label,
                f"{moment.task + 1}/{moment.n_tasks}",
                f"{moment.step:,}/{moment.n_steps:,}",
                "" if moment.accuracy is None else f"{100 * moment.accuracy:.1f}",
                "" if per_step is None else f"{1 / per_step:,.0f}",
                "" if per_step is None else _duration(per_step * (moment.n_steps - moment.step)),
            ]
        )
    header = ["run", "task", "step", "A_t (%)", "steps/s", "left"]
    counts = Text(_counts(jobs, seconds_left))
    return Group(fitted_table("", header, rows, err.width)[0], counts) if rows else Group(counts)


def _counts(jobs: Sequence[Job], seconds_left: float | None) -> str:
    counts = {
        "finished": sum(job.status == "finished" for job in jobs),
        "failed": sum(job.status == "failed" for job in jobs),
        "running": sum(job.moment is not None for job in jobs),
        "run by other processes": sum(job.status == "elsewhere" for job in jobs),
    }
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "finished")
    left = f"; about {_duration(seconds_left)} left" if seconds_left else ""
    return f"{len(jobs)} runs: {told}{left}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
