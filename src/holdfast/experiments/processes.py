"""The workers of a sweep as processes of this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final

from holdfast.experiments.orders import Begun, Died, Order, Outcome, Report, carry_out
from holdfast.experiments.probes._base import Moment

START: Final = "spawn"  # the only way that every system has, and that is safe beside threads
SECONDS_BETWEEN_REPORTS = 0.25
SECONDS_BETWEEN_LOOKS = 0.1  # of a worker, whether it should stop
SECONDS_TO_LEAVE = 5.0  # for a worker that was told to, before it is killed


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    line: Connection
    path: str | None = None  # of the run that it has


class Processes:
    """A pool of processes that are kept for many runs, since importing torch takes seconds."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.workers: list[_Worker] = []

    def has_room(self) -> bool:
        return sum(worker.path is not None for worker in self.workers) < self.n_workers

    def start(self, order: Order) -> None:
        worker = next((worker for worker in self.workers if worker.path is None), None) or self._hire()
        worker.path = order.experiment.path
        with contextlib.suppress(OSError):  # it has died: the next reports say so
            worker.line.send(order)

    def reports(self, seconds: float) -> list[tuple[str, Report]]:
        connection.wait([part for w in self.workers for part in (w.line, w.process.sentinel)], timeout=seconds)
        found: list[tuple[str, Report]] = []
        for worker in list(self.workers):
            died = not worker.process.is_alive()  # asked first, so that its last words are heard
            with contextlib.suppress(EOFError, OSError):
                while worker.line.poll():
                    report: Report = worker.line.recv()
                    assert worker.path is not None
                    found.append((worker.path, report))
                    if isinstance(report, Outcome):
                        worker.path = None
                        if report.kind == "failed":  # what it left in the process may be broken
                            self._part_with(worker)
                            break
            if died and worker in self.workers:
                if worker.path is not None:
                    found.append((worker.path, Died(_how(worker.process.exitcode))))
                self._part_with(worker)
        return found

    def stop(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.line.send(None)

    def close(self) -> None:
        for worker in self.workers:
            worker.line.close()  # which tells it to leave
        leave_until = time.monotonic() + SECONDS_TO_LEAVE
        for worker in self.workers:
            worker.process.join(max(0, leave_until - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()  # its run goes on from the last checkpoint another time
                worker.process.join()
        self.workers.clear()

    def _hire(self) -> _Worker:
        context = multiprocessing.get_context(START)
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), name="holdfast worker")
        # Ctrl-C in a terminal reaches every process: workers never see it, they are told to stop by the sweep.
        resource_tracker.ensure_running()  # else it starts below, and unblocks signals afterwards
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        worker = _Worker(process, ours)
        self.workers.append(worker)
        return worker

    def _part_with(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.line.close()
        worker.process.join(SECONDS_TO_LEAVE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _how(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"with exit code {exit_code}"


def _work(line: Connection) -> None:
    """Carry out orders until there are no more: the life of a worker."""
    reporter = _Reporter(line)
    signal.signal(signal.SIGTERM, reporter.ask_to_stop)
    while (order := _received(line)) is not None:
        outcome = carry_out(order, reporter)
        if outcome.kind == "stopped" and not line.poll():
            sys.exit(128 + signal.SIGTERM)  # not the sweep asked, so another worker goes on
        reporter.tell(outcome)


def _received(line: Connection) -> Order | None:
    try:
        order: Order | None = line.recv()
    except (EOFError, OSError):  # the sweep is gone
        return None
    return order


class _Reporter:
    """Tells the sweep where a run is, and listens whether it should stop."""

    def __init__(self, line: Connection) -> None:
        self.line = line
        self.stopped = False
        self.told_at = self.listened_at = 0.0

    def tell(self, report: Report) -> None:
        try:
            self.line.send(report)
        except OSError:  # the sweep is gone
            self.stopped = True

    def begin(self, facts: dict[str, str], moment: Moment) -> None:
        self.tell(Begun(moment))

    def step(self, moment: Moment) -> None:
        now = time.monotonic()
        if now - self.told_at >= SECONDS_BETWEEN_REPORTS:
            self.told_at = now
            self.tell(moment)

    def stop(self) -> bool:
        now = time.monotonic()
        if not self.stopped and now - self.listened_at >= SECONDS_BETWEEN_LOOKS:
            self.listened_at = now
            self.stopped = self.line.poll()  # while it has a run, only the word to stop can come, or the line's end
        return self.stopped

    def ask_to_stop(self, *_: object) -> None:
        self.stopped = True
