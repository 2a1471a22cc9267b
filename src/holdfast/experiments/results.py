"""Results in a folder: what was run, and what came out."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import re
import shutil
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from holdfast.core.atomic import replacing
from holdfast.core.fingerprint import Fingerprint, digest_of
from holdfast.experiments import metrics
from holdfast.experiments.code import Continued
from holdfast.experiments.experiment import Experiment, parting, short_hash
from holdfast.experiments.measured import check_parts, metrics_of
from holdfast.experiments.probes.footprint import Footprint
from holdfast.experiments.stored_json import check, parse, read_text

RESULT, EXPERIMENT, LOCK = "result.json", "experiment.json", ".lock"
PACKED = "results.jsonl"  # a result a line
REMOVE = "remove it, or use another --out or --fresh"
MATRICES = ("accuracies", "moved", "apart")  # which have most of the numbers, each of which is a float
_RUN = re.compile(r'\{"run": ?"(?P<run>[^"\\]*)", ?')  # how a line of PACKED begins
_CODE = re.compile(r',"code":"(?P<digest>[0-9a-f]{12})"')  # in a line whose code a line above it states
_NAMED = re.compile("(?P<seed>[0-9]{1,19})-(?P<digest>[0-9a-f]{10})")  # how the folder of a run is named


class Result(BaseModel):
    """Result of a finished run: kilobytes, enough to make every table again.

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

    @field_validator("experiment", mode="before")
    @classmethod
    def _experiment_is_of_a_file(cls, given: Any) -> Any:
        if isinstance(given, Experiment):
            return given
        check(given)
        return Experiment.stored(given)

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
        """Tell whether there are as many numbers of drift as tasks make, or none."""
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
    """A folder of runs, each in a folder of its own that is named by its experiment, or in a line of a file PACKED.

    A file PACKED is in the folder of a benchmark.

    Example:
        >>> store = ResultStore(Path("runs"))
        >>> store.find(Experiment(stream="split_digits", seed=987654321)) is None  # not run yet
        True
    """

    root: Path

    def folder(self, experiment: Experiment) -> Path:
        return self.root / experiment.path

    def find(self, experiment: Experiment) -> Result | None:
        """Return the result of a finished run; None if it is not finished.

        ValueError if what stands in its place is damaged, or the result of another experiment.
        """
        path = self.folder(experiment) / RESULT
        if path.exists():
            result = read_result(path)
            if unlike := parting(result.experiment, experiment):
                raise ValueError(f"{path} is the result of another run ({unlike}): {REMOVE}")
            return result
        packed = self.root / experiment.benchmark / PACKED
        if not packed.is_file():
            return None
        return read_packed(packed).get(packed.with_name(f"{PACKED}#{experiment.digest}"))

    def save(self, result: Result) -> None:
        write_text(self.folder(result.experiment) / RESULT, as_text(result.model_dump(mode="json")))

    def results(self) -> list[Result]:
        """Return all finished runs; a damaged or foreign file is named in a warning and passed over."""
        return list(self.results_by_path().values())

    def results_by_path(self) -> dict[Path, Result]:
        """Return all finished runs by the files that hold them; one of several in a file as 'FILE#digest'."""
        found: dict[Path, Result] = {}
        with _no_collection():
            for path in sorted([*self.root.rglob(RESULT), *self.root.rglob(PACKED)]):
                try:
                    found |= read_packed(path) if path.name == PACKED else {path: read_result(path)}
                except (OSError, ValueError) as error:
                    warnings.warn(str(error), stacklevel=2)
            return dict(sorted(found.items(), key=_order))

    @contextmanager
    def claimed(self, experiment: Experiment) -> Iterator[Path]:
        """Context manager: the folder of `experiment`, for this process alone; refused for another configuration.

        If nothing was left in it at the end, as of a run that was refused, the folder is gone again.
        """
        if ".." in Path(experiment.path).parts or Path(experiment.path).is_absolute():
            raise Refused(f"the run {experiment.path!r} would be written outside {self.root}")
        folder = self.folder(experiment)
        self._check_root()
        above = self.root if self.root.exists() else self.root.parent  # a root that is made here is removed again
        try:
            with _locked(folder):
                for half in folder.glob("*.writing"):  # of a process that was killed
                    half.unlink()
                self._check_configuration(experiment, folder / EXPERIMENT)
                try:
                    yield folder
                finally:
                    if {each.name for each in folder.iterdir()} <= {EXPERIMENT, LOCK}:
                        (folder / EXPERIMENT).unlink(missing_ok=True)
        finally:
            _remove_empty(folder, above)

    def discard(self, experiment: Experiment) -> None:
        """Remove what is there of an experiment, and what was begun of it by other code of another package."""
        for folder, _ in self.begun_by_other_code(experiment):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.folder(experiment), ignore_errors=True)

    def begun_by_other_code(self, experiment: Experiment) -> Iterator[tuple[Path, Experiment]]:
        """Runs that were begun and stopped, of the same experiment but for code of another package.

        Each folder is locked while it is looked at; one that is being run is left out.
        """
        wanted = experiment.model_copy(update={"foreign_code": {}}).identity
        own = self.folder(experiment)
        for path in sorted(own.parent.glob(f"{experiment.seed}-*/{EXPERIMENT}")) if experiment.foreign_code else []:
            if path.parent == own or (path.parent / RESULT).exists():
                continue
            with contextlib.suppress(Busy, OSError, ValueError), _locked(path.parent):
                found = Experiment.stored(parse(read_text(path)))
                if found.model_copy(update={"foreign_code": {}}).identity == wanted:
                    yield path.parent, found

    def _check_root(self) -> None:
        for place in (self.root, *self.root.absolute().parents):
            if place.exists() and not place.is_dir():
                raise Refused(f"{place} is no folder, so no results can go to {self.root}: name another --out")

    def _check_configuration(self, experiment: Experiment, path: Path) -> None:
        if not path.exists():
            write_text(path, as_text(experiment.model_dump(mode="json")))
            return
        try:
            found = Experiment.stored(parse(read_text(path)))
        except ValueError as error:
            raise Refused(f"{path} is damaged ({_first_line(error)}): use another --out or --fresh") from error
        if unlike := parting(found, experiment):
            raise Refused(f"{path.parent} was made with {unlike}: use another --out or --fresh")


def split_place(path: Path) -> tuple[Path, str]:
    """Return the file of a result, and its digest if the file holds several; else ''.

    Example:
        >>> split_place(Path("runs/split_digits/results.jsonl#0123456789"))
        (PosixPath('runs/split_digits/results.jsonl'), '0123456789')
    """
    name, _, digest = path.name.partition("#")
    return (path.with_name(name), digest) if name == PACKED else (path, "")


def _order(item: tuple[Path, Result]) -> tuple[str, str, int, str]:
    """Sort results by the folder of their benchmark, row, seed and settings, wherever they stand in it."""
    path, result = item
    benchmark = path.parent if split_place(path)[1] else path.parent.parent.parent
    return str(benchmark), result.experiment.row, result.experiment.seed, json.dumps(result.experiment.identity)


def read_result(path: Path) -> Result:
    """Return the result in a file, or in a line of one as 'results.jsonl#digest'; ValueError naming a bad file.

    A folder that is named by an experiment, or says in EXPERIMENT which it is of, must hold the result of that one.
    """
    file, digest = split_place(path)
    if digest:
        found = read_packed(file)
        if path not in found:
            raise ValueError(f"no result {digest} in {file}")
        return found[path]
    text = read_text(path)
    try:
        result = _result_of(text)
        metrics.checked_matrix(result.accuracies)
    except ValueError as error:
        raise ValueError(f"{path} is no result of a run: {_first_line(error)}") from error
    _check_place(path, result, text)
    return result


def results_at(path: Path) -> list[Result]:
    """Return the results of a folder of runs, of the folder of one, of a file PACKED, or of a place in it.

    What cannot be read is named in a warning, or in a ValueError if it is the one that is asked for.
    """
    file, digest = split_place(path)
    if digest or path.name == RESULT:
        return [read_result(path)]
    if file.name == PACKED and file.is_file():
        return list(read_packed(file).values())
    return [read_result(path / RESULT)] if (path / RESULT).exists() else ResultStore(path).results()


def read_packed(path: Path) -> dict[Path, Result]:
    """Return the results in a file PACKED by their places, 'FILE#digest'; a line that is none is named in a warning."""
    try:
        status = path.stat()
        found, odd = _read_packed(path, status.st_mtime_ns, status.st_size, status.st_ino)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {_first_line(error)}") from error
    for text in odd:
        warnings.warn(text, stacklevel=3)
    return dict(found)


@lru_cache(maxsize=64)
def _read_packed(path: Path, *_: int) -> tuple[dict[Path, Result], list[str]]:
    """Return the results of a file in the state that the numbers tell, and what is odd in it."""
    found: dict[Path, Result] = {}
    odd = []
    codes: dict[str, Fingerprint] = {}
    for i, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            said = _RUN.match(line)
            if said is None:
                raise ValueError('it does not begin with {"run":"benchmark/row/seed-digest",')
            result = _result_of(_with_code("{" + line[said.end() :], codes))
            codes |= {} if result.code is None else {digest_of(result.code): result.code}
            result = result.model_copy(update={"accuracies": _filled_up(result.accuracies)})
            metrics.checked_matrix(result.accuracies)
            if said["run"] != result.experiment.path:
                raise ValueError(f"it states the run {said['run']}, but holds the result of {result.experiment.path}")
            place = path.with_name(f"{path.name}#{said['run'].rpartition('-')[2]}")
            if place in found:
                raise ValueError(f"a line above it holds the same run, {said['run']}")
            found[place] = result
        except ValueError as error:
            odd.append(f"{path}, line {i}, is no result of a run and is passed over: {_first_line(error)}")
    return found, odd


def _with_code(text: str, codes: Mapping[str, Fingerprint]) -> str:
    """Return the text of a result with its code whole; ValueError if that is not among the `codes` by digest."""
    found = _CODE.search(text)
    if found is None:
        return text
    if found["digest"] not in codes:
        raise ValueError(f"no line above it states the code {found['digest']}")
    return f'{text[: found.start()]},"code":{json.dumps(codes[found["digest"]])}{text[found.end() :]}'


def _result_of(text: str) -> Result:
    """Return the result that a text states; ValueError if it is none, or has what no run leaves."""
    result = Result.model_validate_json(text)
    check({name: value for name, value in result if name not in MATRICES})
    return result


def _check_place(path: Path, result: Result, text: str) -> None:
    """Raise ValueError if the folder of a result says that it is of another experiment."""
    experiment, folder = result.experiment, path.parent
    if named := _NAMED.fullmatch(folder.name):
        # Before every option was stated, the hash was over what the file says.
        is_named_so = named["digest"] == experiment.digest or named["digest"] == short_hash(parse(text)["experiment"])
        if int(named["seed"]) != experiment.seed or not is_named_so:
            raise ValueError(
                f"{path} is the result of another run, {experiment.label} ({experiment.digest}), than its folder is "
                f"named by: {REMOVE}"
            )
    stated = folder / EXPERIMENT
    if not stated.is_file():
        return
    try:
        unlike = parting(experiment, Experiment.stored(parse(read_text(stated))))
    except (OSError, ValueError):  # which `claimed` will tell, if the run is asked for
        return
    if unlike:
        raise ValueError(f"{path} is the result of another run than {EXPERIMENT} beside it ({unlike}): {REMOVE}")


def packed_text(results: Iterable[Result]) -> str:
    """Return the content of a file PACKED; code that several runs share is stated in the first of their lines."""
    lines: list[str] = []
    stated: set[str] = set()
    for result in results:
        lines.append(line_of(result, stated) + "\n")
        stated |= set() if result.code is None else {digest_of(result.code)}
    return "".join(lines)


def line_of(result: Result, stated: Collection[str] = ()) -> str:
    """Return the line of a file PACKED that holds a result; what a run has not left is not there.

    Args:
        stated: digests of codes that lines above it state.
    """
    content = result.model_dump(mode="json")
    unsaid = {name: field.get_default(call_default_factory=True) for name, field in Result.model_fields.items()}
    said = {name: value for name, value in content.items() if value != unsaid[name]}
    said["accuracies"] = _without_trailing(result.accuracies)
    if result.code is not None and (digest := digest_of(result.code)) in stated:
        said["code"] = digest
    return json.dumps({"run": result.experiment.path, **said}, separators=(",", ":"))


def _without_trailing(rows: list[list[float | None]]) -> list[list[float | None]]:
    """Return rows of a matrix without the None at their ends, if the width can still be told from the longest."""
    short = []
    for row in rows:
        n = len(row)
        while n and row[n - 1] is None:
            n -= 1
        short.append(row[:n])
    return short if max(map(len, short), default=0) == max(map(len, rows), default=0) else rows


def _filled_up(rows: list[list[float | None]]) -> list[list[float | None]]:
    """Return the rows of a matrix from which None at their ends was left out."""
    width = max(map(len, rows), default=0)
    return [row + [None] * (width - len(row)) for row in rows]


def as_text(content: Any) -> str:
    """Return JSON to store: a field a line, and a row of a matrix a line.

    Example:
        >>> print(as_text({"lr": 0.1, "accuracies": [[0.5, None], [0.25, 0.75]]}), end="")
        {
         "lr": 0.1,
         "accuracies": [
          [0.5, null],
          [0.25, 0.75]
         ]
        }
    """
    return _as_lines(content, "") + "\n"


def _as_lines(value: Any, indent: str) -> str:
    if isinstance(value, list) and any(isinstance(row, list) for row in value):
        rows = ",\n".join(f"{indent} {json.dumps(row)}" for row in value)
        return f"[\n{rows}\n{indent}]"
    if isinstance(value, dict) and (
        not indent or any(isinstance(each, list | dict) and each for each in value.values())
    ):
        items = [f"{indent} {json.dumps(name)}: {_as_lines(each, indent + ' ')}" for name, each in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    return json.dumps(value)


def write_text(path: Path, text: str) -> None:
    """Write a small file in one step, so that it is never half there."""
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def _no_collection() -> Iterator[None]:
    """Context manager: collect no garbage inside, where many small objects are made that stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Context manager: hold the lock of a folder, which is made; Busy if another process holds it.

    The file is gone afterwards. A process that has opened it before, and locks it then, holds the lock of nothing:
    hence the look at what is there after locking.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = (folder / LOCK).open("w")
        except FileNotFoundError:  # the folder was removed in between
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"{folder} is being run by another process: wait for it, or use another --out") from None
            if not _is_at(lock, folder / LOCK):
                continue
            try:
                yield
            finally:
                (folder / LOCK).unlink(missing_ok=True)
            return


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _remove_empty(folder: Path, above: Path) -> None:
    """Remove a folder if it is empty, and the folders over it likewise, up to the one `above`, which stays."""
    with contextlib.suppress(OSError):  # which says that one is not empty
        while folder != above:
            folder.rmdir()
            folder = folder.parent


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
