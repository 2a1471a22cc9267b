"""Experiments run one after the other, with a bar while they run."""

from __future__ import annotations

import time
from typing import Unpack

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from holdfast.cli.options import err, out, stop_on_signal
from holdfast.experiments.code import other_code
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.run import How, run
from holdfast.experiments.under_way import duration

SAY_EVERY = 30.0  # seconds between lines where there is no terminal


def run_all(
    experiments: list[Experiment],
    store: ResultStore,
    *,
    fresh: bool = False,
    quiet: bool = False,
    **how: Unpack[How],
) -> list[Result]:
    """Run `experiments` in turn; Ctrl-C saves the one that runs and ends the program."""
    results = []
    with stop_on_signal() as stop:
        for experiment in experiments:
            with RunWatcher(experiment.label, quiet=quiet) as watcher:
                result = run(experiment, store, fresh=fresh, watcher=watcher, stop=stop, **how)
            if not watcher.has_begun and not quiet:
                unlike = other_code(result.code, experiment)
                finished = f"finished before {unlike}".strip()
                out.print(f"{experiment.label}: {finished}, skipped ({store.folder(experiment)})")
            results.append(result)
    return results


class RunWatcher:
    """Prints what a run is about to do, and while it runs a bar; without a terminal a line from time to time."""

    def __init__(self, label: str, *, quiet: bool, tells: bool = True) -> None:
        self.label = label
        self.tells = tells and not quiet  # what it is about to do
        self.says = not quiet and not err.is_terminal
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[accuracy]}"),
            console=err,
            transient=True,
            disable=quiet or not err.is_terminal,
        )
        self.line: TaskID | None = None
        self.shown_at = 0.0
        self.begun_at = (0.0, 0)  # seconds, steps

    @property
    def has_begun(self) -> bool:
        return self.line is not None

    def __enter__(self) -> RunWatcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def begin(self, facts: dict[str, str], moment: Moment) -> None:
        if self.tells:
            out.print(self.label)
            for name, text in facts.items():
                out.print(f"  {name:<13}{text}")
            if moment.step:
                out.print(f"  {'continued':<13}from step {moment.step:,} of {moment.n_steps:,}")
        self.begun_at = (time.monotonic(), moment.step)
        self.shown_at = self.begun_at[0]
        self.line = self.bar.add_task(self.label, total=moment.n_steps, completed=moment.step, rate="", accuracy="")
        self.bar.start()

    def step(self, moment: Moment) -> None:
        now = time.monotonic()
        if self.says and now - self.shown_at >= SAY_EVERY:
            self.shown_at = now
            err.print(self._line(moment, now))
        if self.bar.disable or self.line is None or (now - self.shown_at < 0.1 and moment.step < moment.n_steps):
            return
        self.shown_at = now
        rate = self._rate(moment, now)
        self.bar.update(
            self.line,
            completed=moment.step,
            description=f"{self.label} task {moment.task + 1}/{moment.n_tasks}",
            rate=f"{rate:,.0f} steps/s" if rate else "",
            accuracy=_accuracy(moment),
        )

    def _rate(self, moment: Moment, now: float) -> float:
        """Return the steps per second since the run began or went on."""
        seconds, steps = now - self.begun_at[0], moment.step - self.begun_at[1]
        return steps / seconds if seconds else 0.0

    def _line(self, moment: Moment, now: float) -> str:
        told = [f"task {moment.task + 1}/{moment.n_tasks}", f"step {moment.step:,} of {moment.n_steps:,}"]
        told += [text] if (text := _accuracy(moment)) else []
        if rate := self._rate(moment, now):
            told.append(f"about {duration((moment.n_steps - moment.step) / rate)} left")
        return f"{self.label}: {', '.join(told)}"


def _accuracy(moment: Moment) -> str:
    return "" if moment.accuracy is None else f"A {100 * moment.accuracy:.1f} %"
