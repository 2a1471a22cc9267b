"""Many runs at once: each is `run` in a worker; one may fail, die or be run elsewhere, and the others go on."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Unpack

from holdfast.experiments.code import other_code
from holdfast.experiments.durations import Known, Size, expected_seconds, seconds_until_done, size_of
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.orders import Begun, Died, Order, Outcome, Report, Warned
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.probing import lacking, wanted_probes
from holdfast.experiments.processes import Processes
from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.run import How, Interrupted

MAX_DEATHS = 3  # of its workers that a run outlives; after one more it counts as failed
SECONDS_BETWEEN_LOOKS = 0.2  # of the sweep at its workers
SECONDS_UNTIL_NEXT_TRY = 1.0  # of a run that another process has claimed


@dataclass(eq=False)
class Job:
    """One run of a sweep, as far as it is.

    Attributes:
        status: 'elsewhere' if another process has claimed it; it is asked for again until that one is done or gone.
        moment: where it is; None if it does not run just now.
        begun_at: seconds of the clock and steps done when it began to run.
        found: it was finished before the sweep came to it.
    """

    experiment: Experiment
    status: Literal["waiting", "ordered", "elsewhere", "finished", "failed"] = "waiting"
    moment: Moment | None = None
    begun_at: tuple[float, int] = (0.0, 0)
    found: bool = False
    result: Result | None = None
    reason: str = ""
    deaths: int = 0
    try_at: float = 0.0
    size: Size = field(init=False)

    def __post_init__(self) -> None:
        self.size = size_of(self.experiment)

    @property
    def is_open(self) -> bool:
        return self.status not in ("finished", "failed")

    @property
    def seconds_per_step(self) -> float | None:
        """Measured since it began to run; None before the first steps are done."""
        if self.moment is None or self.moment.step == self.begun_at[1]:
            return None
        return (time.monotonic() - self.begun_at[0]) / (self.moment.step - self.begun_at[1])


class SweepWatcher(Protocol):
    """Someone who follows a sweep."""

    def said(self, job: Job, text: str) -> None:
        """Tell what happened to a run."""

    def showed(self, jobs: Sequence[Job], seconds_left: float | None) -> None:
        """Show the state of all runs; called several times a second."""

    def stopping(self) -> None:
        """Tell that the sweep was asked to stop and has told its workers."""


class Silent:
    """A watcher that looks away."""

    def said(self, job: Job, text: str) -> None: ...

    def showed(self, jobs: Sequence[Job], seconds_left: float | None) -> None: ...

    def stopping(self) -> None: ...


@dataclass(frozen=True)
class Failure:
    """A run that did not come to its end, and why."""

    experiment: Experiment
    reason: str


@dataclass(frozen=True)
class SweepReport:
    """Results and failures of a sweep, in the order of the requested runs.

    Attributes:
        n_found: how many of the results were there before.
    """

    results: list[Result]
    failures: list[Failure]
    n_found: int


class Pool(Protocol):
    """Workers that carry out orders; a run is named by the path of its experiment."""

    @property
    def n_workers(self) -> int:
        """Return the largest number of simultaneous runs."""

    def has_room(self) -> bool:
        """Return True if the pool accepts one more order now."""

    def start(self, order: Order) -> None: ...

    def reports(self, seconds: float) -> list[tuple[str, Report]]:
        """Return the reports of the workers; wait at most so long if there are none."""

    def stop(self) -> None:
        """Tell all workers to save where they are and to say that they stopped."""

    def close(self) -> None:
        """Part with all workers; those that still run something are not waited for long."""


def sweep(
    experiments: Sequence[Experiment],
    store: ResultStore,
    *,
    workers: int | None = None,
    watcher: SweepWatcher | None = None,
    stop: Callable[[], bool] = lambda: False,
    **how: Unpack[How],
) -> SweepReport:
    """Run all that is not finished, the longest first, in processes of this machine with one torch thread each.

    A run that fails is reported at the end, and the others go on. A worker that dies is replaced, and its run goes on
    from its last checkpoint, up to MAX_DEATHS times. A run claimed by another process, such as another sweep on the
    same folder, is left to that process. The sweep does other work first, then waits: its result is read when it is
    there, and if the other process is gone without one, the run is continued here.

    A script that calls this needs the line `if __name__ == "__main__":`, since workers import it.

    Args:
        workers: how many processes; by default one for each processor that may be used.
        watcher: told what happens.
        stop: asked several times a second; if it says so, the runs save where they are, and Interrupted is raised.
        how: as in `run`.
    """
    n_workers = workers or count_processors()
    return oversee(experiments, store, how, lambda: Processes(n_workers), watcher=watcher or Silent(), stop=stop)


def count_processors() -> int:
    """Return the number of processors that this process may use; macOS cannot tell, so there all count."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def oversee(
    experiments: Sequence[Experiment],
    store: ResultStore,
    how: How,
    make_pool: Callable[[], Pool],
    *,
    watcher: SweepWatcher,
    stop: Callable[[], bool],
) -> SweepReport:
    """Sweep over any pool, which is not made if all runs are finished."""
    jobs = [Job(experiment) for experiment in {e.path: e for e in experiments}.values()]
    overseer = _Overseer(jobs, store, how, watcher)
    overseer.look_for_finished()
    if any(job.is_open for job in jobs):
        with contextlib.closing(make_pool()) as pool:
            overseer.work(pool, stop)
    return SweepReport(
        results=[job.result for job in jobs if job.result is not None],
        failures=[Failure(job.experiment, job.reason) for job in jobs if job.status == "failed"],
        n_found=sum(job.found for job in jobs),
    )


class _Overseer:
    """Hands out orders and keeps the books."""

    def __init__(self, jobs: list[Job], store: ResultStore, how: How, watcher: SweepWatcher) -> None:
        self.jobs = jobs
        self.store = store
        self.how = how
        self.watcher = watcher
        self.known: list[Known] = []

    def look_for_finished(self) -> None:
        for job in self.jobs:
            try:
                job.result = self.store.find(job.experiment)
            except (OSError, ValueError) as error:
                self._fail(job, str(error))
            if job.result is not None:
                job.found = True
                self._finish(job)
        with warnings.catch_warnings(action="ignore"):  # what is damaged tells no time, and is no matter here
            for benchmark in {job.experiment.benchmark for job in self.jobs}:
                for result in ResultStore(self.store.root / benchmark).results():
                    self.known.append((size_of(result.experiment), result.seconds + result.seconds_testing))

    def work(self, pool: Pool, stop: Callable[[], bool]) -> None:
        stopping = False
        by_path = {job.experiment.path: job for job in self.jobs}
        while any(job.is_open for job in self.jobs):
            if not stopping and stop():
                stopping = True
                pool.stop()
                self.watcher.stopping()
            if stopping and not any(job.status == "ordered" for job in self.jobs):
                n_done = sum(not job.is_open for job in self.jobs)
                raise Interrupted(f"stopped with {n_done} of {len(self.jobs)} runs done")
            while not stopping and pool.has_room() and (job := self._next()) is not None:
                job.status = "ordered"
                pool.start(Order(job.experiment, self.store.root, self.how))
            for path, report in pool.reports(SECONDS_BETWEEN_LOOKS):
                self._hear(by_path[path], report)
            self.watcher.showed(self.jobs, self._seconds_left(pool.n_workers))

    def _next(self) -> Job | None:
        """Return the longest run that waits; one that is claimed elsewhere only when no other waits."""
        ready = [job for job in self.jobs if job.status == "waiting"]
        now = time.monotonic()
        ready = ready or [job for job in self.jobs if job.status == "elsewhere" and job.try_at <= now]
        seconds = self._seconds_by_kind(self.known)
        return max(ready, key=lambda job: seconds.get(job.size.kind, job.size.weight), default=None)

    def _hear(self, job: Job, report: Report) -> None:
        match report:
            case Begun(moment):
                job.moment = moment
                job.begun_at = (time.monotonic(), moment.step)
                self.watcher.said(job, f"continued from step {moment.step:,}" if moment.step else "begun")
            case Moment():
                job.moment = report
            case Warned(text):
                self.watcher.said(job, f"warning: {text}")
            case Outcome("finished"):
                job.found = job.moment is None
                self._finish(job)
            case Outcome("failed", reason):
                self._fail(job, reason)
            case Outcome("elsewhere"):
                if job.try_at == 0:
                    self.watcher.said(job, "is being run by another process, whose result is waited for")
                job.status = "elsewhere"
                job.try_at = time.monotonic() + SECONDS_UNTIL_NEXT_TRY
            case Outcome("stopped"):
                job.status, job.moment = "waiting", None
            case Died(how):
                job.deaths += 1
                job.status, job.moment = "waiting", None
                if job.deaths > MAX_DEATHS:
                    self._fail(job, f"its worker died {job.deaths} times, the last time {how}")
                else:
                    self.watcher.said(job, f"its worker died ({how}); another goes on from the last checkpoint")

    def _finish(self, job: Job) -> None:
        folder = self.store.folder(job.experiment)
        try:
            job.result = self.store.find(job.experiment)
        except (OSError, ValueError) as error:
            self._fail(job, str(error))
            return
        if job.result is None:
            self._fail(job, f"finished, but there is no result in {folder}: workers must share that folder")
            return
        job.status, job.moment = "finished", None
        if job.found:
            wanted = wanted_probes(self.how.get("probes", ()), record=self.how.get("record", False))
            unlike = other_code(job.result.code, job.experiment)
            lacks = " ".join(lacking(job.result, folder, wanted))
            told = [*([f"without {lacks}"] if lacks else []), *([unlike] if unlike else [])]
            self.watcher.said(job, f"{' '.join(['finished before', *told])}, skipped ({folder})")
            return
        seconds = job.result.seconds + job.result.seconds_testing
        self.known.append((job.size, seconds))
        accuracy = job.result.metrics["average_accuracy"]
        self.watcher.said(job, f"finished, A_T {100 * accuracy:.2f} % in {seconds:,.1f} seconds")

    def _fail(self, job: Job, reason: str) -> None:
        job.status, job.moment, job.found, job.reason = "failed", None, False, reason
        self.watcher.said(job, f"FAILED: {reason}")

    def _seconds_by_kind(self, known: list[Known]) -> dict[str, float]:
        sizes = {job.size.kind: job.size for job in self.jobs if job.is_open}
        expected = {kind: expected_seconds(size, known) for kind, size in sizes.items()}
        return {kind: seconds for kind, seconds in expected.items() if seconds is not None}

    def _seconds_left(self, n_workers: int) -> float | None:
        """Return the estimated seconds until the sweep ends, or None while nothing is known."""
        running, known = [], list(self.known)
        for job in self.jobs:
            if job.moment is not None and (per_step := job.seconds_per_step) is not None:
                running.append(per_step * (job.moment.n_steps - job.moment.step))
                known.append((job.size, per_step * job.moment.n_steps))
        seconds = self._seconds_by_kind(known)
        # Runs that another process has claimed are not ours to do.
        waiting = [job for job in self.jobs if job.status in ("waiting", "ordered") and job.seconds_per_step is None]
        if any(job.size.kind not in seconds for job in waiting):
            return None
        return seconds_until_done(running, [seconds[job.size.kind] for job in waiting], n_workers)
