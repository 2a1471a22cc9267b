"""Protocol: the facts that runs in one table must have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.experiments.differences import joined, plain, set_options
from holdfast.experiments.results import Result

SUBSETS = {"report": "reported", "tuning": "tuning", "all": "tuning and reported"}  # by the option `tasks` of a stream


@dataclass(frozen=True, order=True)
class Protocol:
    """A benchmark, its tasks, and how they are learned; numbers of two protocols are not to be compared.

    Attributes:
        tasks: a value of the stream's option of that name.
        options: the stream's other options by name: those that differ from their defaults.
    """

    benchmark: str
    tasks: str
    n_tasks: int
    setting: str
    batch_size: int
    stream: str
    options: tuple[tuple[str, str], ...]

    @property
    def heading(self) -> str:
        """The protocol in one line."""
        words = [f"{self.n_tasks} {SUBSETS.get(self.tasks, self.tasks)} task{'' if self.n_tasks == 1 else 's'}"]
        words += [f"setting {self.setting}", f"batches of {self.batch_size}"]
        words += [f"stream {self.stream}"] if self.stream != self.benchmark else []
        words += [f"{name}={value}" for name, value in self.options]
        return f"{self.benchmark}: {', '.join(words)}"


def protocol_of(result: Result) -> Protocol:
    """Return the protocol of a run; joint training has that of the stream whose tasks it joins."""
    experiment = result.experiment
    stream = joined(experiment)
    tasks = str(stream.options.get("tasks", "report"))
    # The result has the number of tasks, where it was left to the stream too.
    options = {n: plain(v) for n, v in set_options("streams", stream).items() if n not in ("tasks", "n_tasks")}
    return Protocol(
        benchmark=experiment.benchmark,
        tasks=tasks,
        n_tasks=max(len(result.accuracies), *map(len, result.accuracies[:1]), 0),  # joint training has one row
        setting=experiment.setting,
        batch_size=experiment.batch_size,
        stream=stream.name,
        options=tuple(sorted((name, str(value)) for name, value in options.items())),
    )


def by_protocol(results: Iterable[Result]) -> dict[Protocol, list[Result]]:
    """Return the runs of each protocol by benchmark; reported tasks come before tuning tasks."""
    found: dict[Protocol, list[Result]] = {}
    for result in results:
        found.setdefault(protocol_of(result), []).append(result)
    return {protocol: found[protocol] for protocol in sorted(found)}
