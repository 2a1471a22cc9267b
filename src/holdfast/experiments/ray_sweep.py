"""The sweep on a Ray cluster: Ray finds a processor for each run and replaces workers that die."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

from holdfast.core.extras import how_to_install
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.orders import Begun, Order, Outcome, Report, carry_out
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import How
from holdfast.experiments.sweep import MAX_DEATHS, Silent, SweepReport, SweepWatcher, count_processors, oversee

SECONDS_BETWEEN_REPORTS = 0.5
OBJECT_STORE = 100 * 2**20  # bytes of a Ray of our own: orders and reports are small


def ray_sweep(
    experiments: Sequence[Experiment],
    store: ResultStore,
    *,
    address: str = "auto",
    workers: int | None = None,
    watcher: SweepWatcher | None = None,
    stop: Callable[[], bool] = lambda: False,
    **how: Unpack[How],
) -> SweepReport:
    """Run a sweep on Ray, one task and one processor a run; all hosts must see the store's folder at one path.

    Args:
        address: of a cluster; 'auto' for the one that this host belongs to, 'local' for one that lives as long as
            the sweep. A process that is connected to Ray already stays with that.
        workers: at most so many runs at once; by default as many as the cluster has processors.
        watcher, stop, how: as in `sweep`.
    """
    # Workers have other current folders and environments.
    store = ResultStore(store.root.resolve())
    if data := how.get("data") or os.environ.get("HOLDFAST_DATA"):
        how["data"] = Path(data).resolve()

    with contextlib.ExitStack() as connection:

        def pool() -> _Tasks:
            ray = connection.enter_context(connected(address, workers))
            return _Tasks(ray, workers, on_gpu=how.get("device", "cpu").startswith("cuda"))

        return oversee(experiments, store, how, pool, watcher=watcher or Silent(), stop=stop)


@contextlib.contextmanager
def connected(address: str, n_processors: int | None) -> Iterator[Any]:
    """Context manager: the module `ray`, connected; a connection that was there before is used and left."""
    ray = _imported()
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        n_processors = n_processors or count_processors()
        options |= {"num_cpus": n_processors, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    try:
        # Ray puts the folder that is current now first on the path of its workers: one where nobody leaves files.
        with _handler_of_sigterm_kept(), contextlib.chdir("/"):
            ray.init(**options)
    except (OSError, RuntimeError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ConnectionError(
            f"no Ray at '{address}': {first} ('ray start --head' starts a cluster, '--ray local' one for this sweep)"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _handler_of_sigterm_kept() -> Iterator[None]:
    """Ray puts its own there, which ends at once; in the main thread only."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _imported() -> Any:
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise ValueError(f"a sweep on Ray needs Ray, which is not installed: {how_to_install('ray')}") from error


class _Tasks:
    """A pool of Ray tasks."""

    def __init__(self, ray: Any, n_workers: int | None, *, on_gpu: bool) -> None:
        self.ray = ray
        self.limit = n_workers
        # The board needs no processor to itself: it answers in no time.
        self.board = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Board).remote()
        self.task = ray.remote(num_cpus=1, num_gpus=int(on_gpu), max_retries=MAX_DEATHS)(_carry_out)
        self.imports = [str(Path(place).resolve()) for place in sys.path]
        self.paths: dict[Any, str] = {}  # of the runs that were ordered, by Ray's reference

    @property
    def n_workers(self) -> int:
        n_processors = int(self.ray.cluster_resources().get("CPU", 1))
        return min(self.limit or n_processors, n_processors)

    def has_room(self) -> bool:
        # Without a limit everything is ordered at once: a cluster that grows with its work sees how much there is.
        return self.limit is None or len(self.paths) < self.limit

    def start(self, order: Order) -> None:
        self.paths[self.task.remote(order, self.board, self.imports)] = order.experiment.path

    def reports(self, seconds: float) -> list[tuple[str, Report]]:
        if not self.paths:
            time.sleep(seconds)
        ended, _ = self.ray.wait(list(self.paths), timeout=seconds) if self.paths else ([], [])
        told: list[tuple[str, Report]] = self.ray.get(self.board.take.remote())
        return told + [(self.paths.pop(reference), self._outcome(reference)) for reference in ended]

    def stop(self) -> None:
        will_hear_of_it = self.ray.get(self.board.stop.remote())
        for reference, path in self.paths.items():
            if path not in will_hear_of_it:  # it may wait long for a processor
                self.ray.cancel(reference)

    def close(self) -> None:
        for reference in self.paths:
            self.ray.cancel(reference, force=True)
        self.ray.kill(self.board)

    def _outcome(self, reference: Any) -> Outcome:
        try:
            outcome: Outcome = self.ray.get(reference)
        except self.ray.exceptions.TaskCancelledError:
            return Outcome("stopped")
        except self.ray.exceptions.WorkerCrashedError:
            return Outcome("failed", f"its worker died {MAX_DEATHS + 1} times")
        except self.ray.exceptions.RayError as error:
            return Outcome("failed", str(error).strip().splitlines()[-1])
        return outcome


def _carry_out(order: Order, board: Any, imports: list[str]) -> Outcome:
    """Run the orders of a sweep inside a Ray worker."""
    sys.path += [place for place in imports if place not in sys.path]  # as far as they exist on this host
    with _Reporter(order.experiment.path, board) as reporter:
        return carry_out(order, reporter)


class _Board:
    """An actor where workers leave word for the sweep and see whether they should stop."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Report]] = []
        self.there: set[str] = set()  # runs whose workers have been here and will come again
        self.stopped = False

    def tell(self, path: str, reports: list[Report], leaving: bool) -> bool:
        self.told += [(path, report) for report in reports]
        (self.there.discard if leaving else self.there.add)(path)
        return self.stopped

    def take(self) -> list[tuple[str, Report]]:
        told, self.told = self.told, []
        return told

    def stop(self) -> set[str]:
        self.stopped = True
        return self.there


class _Reporter:
    """Leaves word on the board from a thread of its own.

    A task that waits for an answer of Ray gives its processor away meanwhile, and so more runs would begin than there
    are processors; a thread beside the task's may wait.
    """

    def __init__(self, path: str, board: Any) -> None:
        self.ray = _imported()
        self.path = path
        self.board = board
        self.stopped = False
        self.news: list[Report] = []
        self.told_at = 0.0
        self.closing = threading.Event()
        self.answered = threading.Event()
        self.thread = threading.Thread(target=self._talk, daemon=True)

    def __enter__(self) -> _Reporter:
        self.thread.start()
        self.answered.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.thread.join()  # so that all is told before the outcome is

    def tell(self, report: Report) -> None:
        self.told_at = time.monotonic()
        self.news.append(report)

    def begin(self, facts: dict[str, str], moment: Moment) -> None:
        self.tell(Begun(moment))

    def step(self, moment: Moment) -> None:
        if time.monotonic() - self.told_at >= SECONDS_BETWEEN_REPORTS:
            self.tell(moment)

    def stop(self) -> bool:
        return self.stopped

    def _talk(self) -> None:
        leaving = False
        try:
            while not leaving:
                leaving = self.closing.wait(SECONDS_BETWEEN_REPORTS if self.answered.is_set() else 0)
                n = len(self.news)
                told, self.news[:n] = self.news[:n], []
                self.stopped = self.ray.get(self.board.tell.remote(self.path, told, leaving))
                self.answered.set()
        except self.ray.exceptions.RayError:  # the sweep is gone
            self.stopped = True
            self.answered.set()
