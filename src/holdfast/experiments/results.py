"""Results in a folder: what was run, and what came out."""

from __future__ import annotations

import fcntl
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from holdfast.core.atomic import replacing
from holdfast.core.fingerprint import Fingerprint
from holdfast.experiments import metrics
from holdfast.experiments.code import Continued
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.measured import check_parts, metrics_of
from holdfast.experiments.probes.footprint import Footprint


class Result(BaseModel):
    """What a finished run leaves: kilobytes, enough to remake every table.

    Attributes:
        accuracies: a row for each task learned, a column for each task tested; None where not measured.
        moved: [t][i] how far held-out features of task i are, after task t, from where they were when it was learned.
        apart: [t][i][j] how far tasks i > j are apart after task t; both in units of the features' spread.
        seconds: spent learning; `seconds_testing` beside it.
        memory_samples, memory_bytes: what the memory held at the end, and the bytes of all its slots.
        footprint: all that was kept at the end, by kind; None of a run from before it was counted.
        probes: by name, the parts that probes left which were asked for; what is not there was not measured.
        code: the fingerprint of the code that learned; None of a run from before it was recorded.
        continued_across: where the run went on with other code than before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: Experiment
    accuracies: list[list[float | None]]
    moved: list[list[float]] = Field(default_factory=list)
    apart: list[list[list[float]]] = Field(default_factory=list)
    n_steps: int
    seconds: float
    seconds_testing: float
    memory_samples: int
    memory_bytes: int
    n_parameters: int
    versions: dict[str, str]
    footprint: Footprint | None = None
    probes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    code: Fingerprint | None = None
    continued_across: list[Continued] = Field(default_factory=list)

    @field_validator("probes")
    @classmethod
    def _parts_are_of_their_probes(cls, parts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        check_parts(parts)
        return parts

    @property
    def matrix(self) -> metrics.Matrix:
        return np.array(self.accuracies, dtype=np.float64)

    @property
    def milliseconds_per_step(self) -> float | None:
        return 1000 * self.seconds / self.n_steps if self.n_steps > 0 else None

    @property
    def megabytes(self) -> float | None:
        return None if self.footprint is None else self.footprint.total / 1e6

    @property
    def drift_fits(self) -> bool:
        """Whether the numbers of drift are as many as its tasks make, or none."""
        if not self.moved and not self.apart:
            return True
        n_tasks = len(self.accuracies)
        rows = [len(row) for row in self.moved] == list(range(1, n_tasks + 1))
        gaps = [[len(gaps) for gaps in task] for task in self.apart] == [list(range(t + 1)) for t in range(n_tasks)]
        return rows and gaps

    @property
    def metrics(self) -> dict[str, float]:
        return metrics.summary(self.matrix) | metrics_of(self.probes)


class Refused(RuntimeError):
    """A folder of results cannot be used for this run; the message says why."""


class Busy(Refused):
    """Another process runs it now."""


@dataclass(frozen=True)
class ResultStore:
    """A folder of runs, each in a folder of its own that is named by its experiment.

    Example:
        >>> store = ResultStore(Path("runs"))
        >>> store.load(Experiment(stream="split_digits", seed=987654321)) is None  # not run yet
        True
    """

    root: Path

    def folder(self, experiment: Experiment) -> Path:
        return self.root / experiment.path

    def load(self, experiment: Experiment) -> Result | None:
        """The result of a finished run; None if it is not finished."""
        path = self.folder(experiment) / "result.json"
        return read_result(path) if path.exists() else None

    def save(self, result: Result) -> None:
        text = json.dumps(result.model_dump(mode="json"), indent=1)
        write_text(self.folder(result.experiment) / "result.json", text + "\n")

    def results(self) -> list[Result]:
        """All finished runs; a damaged or foreign file is named in a warning and passed over."""
        return list(self.results_by_path().values())

    def results_by_path(self) -> dict[Path, Result]:
        """All finished runs by the files that hold them, as `results`."""
        found = {}
        for path in sorted(self.root.rglob("result.json")):
            try:
                found[path] = read_result(path)
            except (OSError, ValueError) as error:
                warnings.warn(str(error), stacklevel=2)
        return found

    @contextmanager
    def claimed(self, experiment: Experiment) -> Iterator[Path]:
        """The folder of `experiment`, for this process alone; refused if it is of another configuration."""
        folder = self.folder(experiment)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"{folder} is being run by another process: wait for it, or use another --out") from None
            for half in folder.glob("*.writing"):  # of a process that was killed
                half.unlink()
            self._check_configuration(experiment, folder / "experiment.json")
            yield folder

    def _check_configuration(self, experiment: Experiment, path: Path) -> None:
        expected = experiment.model_dump(mode="json")
        if not path.exists():
            write_text(path, json.dumps(expected, indent=1) + "\n")
            return
        try:
            found = json.loads(path.read_text())
        except ValueError as error:
            raise Refused(f"{path} is damaged ({error}): use another --out or --fresh") from error
        for name, value in expected.items():
            if found.get(name) != value:
                raise Refused(
                    f"{path.parent} was made with {name}={found.get(name)}, not {value}: use another --out or --fresh"
                )


def read_result(path: Path) -> Result:
    """The result in a file; ValueError naming the file if it is none."""
    try:
        return Result.model_validate_json(path.read_text())
    except (ValidationError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"{path} is no result of a run: {first}") from error


def write_text(path: Path, text: str) -> None:
    """Write a small file in one step, so that it is never half there."""
    with replacing(path) as file:
        file.write(text.encode())
