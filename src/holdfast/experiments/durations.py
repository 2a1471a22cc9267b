"""Estimates of the duration of runs, from the duration of stored ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median

from holdfast.experiments.experiment import Experiment


@dataclass(frozen=True)
class Size:
    """Facts that decide the duration of a run before it starts.

    Attributes:
        kind: the same for runs that differ in the seed only.
        stream: the same for runs that learn the same samples.
        weight: samples that go through the model for each new sample.
    """

    kind: str
    stream: str
    weight: float


Known = tuple[Size, float]  # a run, and the seconds that it took


def size_of(experiment: Experiment) -> Size:
    """Return the size of an experiment, as far as its settings tell."""
    replay_size, n_steps = (float(_option(experiment, name)) for name in ("replay_size", "steps_per_batch"))
    return Size(
        kind=experiment.kind,
        stream=experiment.stream.model_dump_json(),
        weight=max(n_steps, 1) * (1 + replay_size / experiment.batch_size),
    )


def expected_seconds(size: Size, known: Sequence[Known]) -> float | None:
    """Return the mean of runs that differ in the seed only, else an estimate from other runs; None without any.

    Others are those of the same stream, or all if there is none of it.
    """
    same = [seconds for other, seconds in known if other.kind == size.kind]
    if same:
        return mean(same)
    rates = [seconds / other.weight for other, seconds in known if other.stream == size.stream]
    rates = rates or [seconds / other.weight for other, seconds in known]
    return size.weight * median(rates) if rates else None


def seconds_until_done(running: Iterable[float], waiting: Iterable[float], n_workers: int) -> float:
    """Return the end of the last run if each free worker takes the longest waiting run.

    Args:
        running: seconds that each run under way still needs.
        waiting: seconds of each run that has not begun.
    """
    busy = list(running)
    busy += [0.0] * (n_workers - len(busy))
    heapq.heapify(busy)
    for seconds in sorted(waiting, reverse=True):
        heapq.heappush(busy, heapq.heappop(busy) + seconds)
    return max(busy)


def _option(experiment: Experiment, name: str) -> int:
    """Return an option of the method; 0 if it has none of that name."""
    value = experiment.method.options.get(name, 0)
    return value if isinstance(value, int) else 0
