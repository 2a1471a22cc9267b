"""Make a stored run again, and say whether it comes out to the bit, else where it first parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.checkpoint import CHECKPOINT, read_checkpoint
from holdfast.core.fingerprint import digest_of
from holdfast.experiments.code import code_of, foreign_names
from holdfast.experiments.equivalent import Shown
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.results import Refused, Result, ResultStore
from holdfast.experiments.run import Interrupted, Watcher, run
from holdfast.experiments.versions import versions

BITS_DEPEND_ON = ("torch", "numpy", "threads", "cpu", "processor", "machine")  # of versions
Value = float | int | None


@dataclass(frozen=True)
class Parting:
    """The first number that is not the same; task and column count from 1, as in tables."""

    name: str
    stored: Value
    made: Value
    task: int | None = None  # after which it was measured; None of a number of the whole run
    column: int | None = None  # the task that was tested

    def __str__(self) -> str:
        where = self.name
        if self.task is not None:
            where += f" after task {self.task}" + (f" on task {self.column}" if self.column is not None else "")
        return f"{where}: stored {self.stored!r}, made now {self.made!r}"


@dataclass(frozen=True)
class Remake:
    """Result of making a run again.

    Attributes:
        n_tasks: how many tasks were compared, `of` how many.
        parting: where the two first part; None if all is the same to the bit.
        not_stored: what the stored run did not measure, and so was not compared.
        unlike: by name, what the bits depend on and is not the same or not stored: of the stored run, and now.
        shown: what follows for the two fingerprints, if anything does.
    """

    n_tasks: int
    of: int
    parting: Parting | None
    not_stored: tuple[str, ...]
    unlike: dict[str, tuple[str | None, str | None]]
    shown: Shown | None

    @property
    def is_same(self) -> bool:
        return self.parting is None


@dataclass(frozen=True)
class Numbers:
    """All that is compared: a row for each task learned, and numbers of the whole run by name."""

    accuracies: list[list[float | None]]
    moved: list[list[float]]
    apart: list[list[list[float]]]
    whole: dict[str, int]

    @staticmethod
    def of(result: Result) -> Numbers:
        whole = {name: getattr(result, name) for name in ("n_steps", "memory_samples", "memory_bytes", "n_parameters")}
        if result.footprint is not None:
            whole |= {f"footprint.{name}": value for name, value in result.footprint}
        return Numbers(result.accuracies, result.moved, result.apart, whole)

    def first(self, n_tasks: int) -> Numbers:
        """Return the numbers of the first tasks, without those of the whole run."""
        return Numbers(self.accuracies[:n_tasks], self.moved[:n_tasks], self.apart[:n_tasks], {})


def remake(
    stored: Result,
    folder: Path,
    *,
    tasks_only: int | None = None,
    trust_code: bool = False,
    data: Path | None = None,
    device: str = "cpu",
    checkpoint_seconds: float = 60,
    watcher: Watcher | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Remake:
    """Run the experiment of a stored result again in `folder` and compare.

    Args:
        folder: of results, another than that of the stored result.
        tasks_only: only the first so many tasks of the same stream.
        trust_code: also import code of another package that the result names.
        data, device, checkpoint_seconds, watcher, stop: as in `run`.
    """
    experiment, expected = stored.experiment, Numbers.of(stored)
    if (foreign := foreign_names(experiment)) and not trust_code:
        raise Refused(f"it names code of another package ({', '.join(foreign)}): --trust-code imports it")
    # Code of another package is run as it is today, which `other_code` tells.
    experiment = Experiment.model_validate(experiment.model_dump(mode="json", exclude={"foreign_code"}))
    store = ResultStore(folder)
    if (found := store.find(experiment)) and found.code != code_of(experiment):
        raise Refused(f"{store.folder(experiment)} was finished with other code: use another --out")
    of = len(stored.accuracies)
    n_tasks = of if tasks_only is None else min(tasks_only, of)
    how: dict[str, Any] = {"data": data, "device": device, "checkpoint_seconds": checkpoint_seconds}
    shown = None
    if n_tasks < of:
        expected = expected.first(n_tasks)
        made = _first_tasks(experiment, store, n_tasks, watcher, stop, how)
    else:
        result = run(experiment, store, watcher=watcher, stop=stop, **how)
        made = Numbers.of(result)
        shown = _shown(stored, result)
    parting = next(_partings(expected, made), None)
    lacking = [name for name in ("moved", "apart") if not getattr(expected, name) and getattr(made, name)]
    lacking += ["footprint"] if n_tasks == of and stored.footprint is None else []
    return Remake(n_tasks, of, parting, tuple(lacking), _unlike(stored, experiment), shown if parting is None else None)


class _Until:
    """A watcher that has a run stopped once its first tasks are learned and tested; it takes one step of the next."""

    def __init__(self, n_tasks: int, watcher: Watcher | None) -> None:
        self.n_tasks = n_tasks
        self.watcher = watcher
        self.reached = False

    def begin(self, facts: dict[str, str], moment: Moment) -> None:
        self.reached = moment.task >= self.n_tasks
        if self.watcher:
            self.watcher.begin(facts, moment)

    def step(self, moment: Moment) -> None:
        self.reached = moment.task >= self.n_tasks
        if self.watcher:
            self.watcher.step(moment)


def _first_tasks(
    experiment: Experiment,
    store: ResultStore,
    n_tasks: int,
    watcher: Watcher | None,
    stop: Callable[[], bool],
    how: dict[str, Any],
) -> Numbers:
    until = _Until(n_tasks, watcher)
    try:
        result = run(experiment, store, watcher=until, stop=lambda: until.reached or stop(), **how)
    except Interrupted:
        if not until.reached:
            raise
    else:
        return Numbers.of(result).first(n_tasks)  # of a stream that has no more
    state = read_checkpoint(store.folder(experiment) / CHECKPOINT)
    accuracy, drift = (state["probes"][name]["state"] for name in ("accuracy", "drift"))
    return Numbers(accuracy["accuracies"], drift["moved"], drift["apart"], {}).first(n_tasks)


def _partings(stored: Numbers, made: Numbers) -> Iterator[Parting]:
    """Return all numbers that differ, in the order in which they were measured."""
    if len(stored.accuracies) != len(made.accuracies):
        yield Parting("tasks learned", len(stored.accuracies), len(made.accuracies))
    for t in range(min(len(stored.accuracies), len(made.accuracies))):
        for name, mine, theirs in (
            ("accuracy", stored.accuracies[t], made.accuracies[t]),
            *((("moved", stored.moved[t], _at(made.moved, t)),) if t < len(stored.moved) else ()),
            *((("apart", _flat(stored.apart[t]), _flat(_at(made.apart, t))),) if t < len(stored.apart) else ()),
        ):
            for j in range(max(len(mine), len(theirs))):
                first, second = _at(mine, j, None), _at(theirs, j, None)
                if not _same(first, second):
                    yield Parting(name, first, second, t + 1, j + 1 if name != "apart" else None)
    for name, value in stored.whole.items():
        if value != made.whole[name]:
            yield Parting(name, value, made.whole[name])


def _at(values: list[Any], i: int, otherwise: Any = ()) -> Any:
    return values[i] if i < len(values) else otherwise


def _flat(rows: list[list[float]]) -> list[float]:
    return [value for row in rows for value in row]


def _same(first: Value, second: Value) -> bool:
    """Return True if two numbers are equal to the bit; NaN equals NaN."""
    if first is None or second is None:
        return first is second
    return first == second or (math.isnan(first) and math.isnan(second))


def _unlike(stored: Result, experiment: Experiment) -> dict[str, tuple[str | None, str | None]]:
    """Return what the bits depend on and has changed: versions, and files of other packages by their hashes."""
    now, code, code_now = versions(), stored.experiment.foreign_code, experiment.foreign_code
    pairs = {name: (stored.versions.get(name), now.get(name)) for name in BITS_DEPEND_ON}
    pairs |= {file: (code.get(file), code_now.get(file)) for file in sorted(code.keys() | code_now.keys())}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _shown(stored: Result, made: Result) -> Shown | None:
    """Return the equivalence of two fingerprints that an identical run shows, or None if it is known."""
    if made.code is None or made.continued_across or stored.continued_across or stored.code == made.code:
        return None
    if made.experiment.foreign_code != stored.experiment.foreign_code:
        return None
    return Shown(
        made_by=None if stored.code is None else digest_of(stored.code),
        remade_by=digest_of(made.code),
        run=stored.experiment.path,
        torch=made.versions.get("torch", ""),
        cpu=made.versions.get("cpu", ""),
    )
