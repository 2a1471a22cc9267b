"""Fingerprints known to give the same numbers, and marks for rows whose runs have different code.

A run that was made again and came out to the bit shows that two fingerprints are equivalent. A folder of results keeps
that in EQUIVALENT, a line of JSON for each such run.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.core.fingerprint import changed_modules, digest_of
from holdfast.experiments.code import listed
from holdfast.experiments.results import Result

EQUIVALENT = "equivalent.txt"
MARK = "‡"
MAX_BYTES = 10_000_000  # of the file; a line has some 200
N_PARENTS = 4  # from a run's folder up to the folder of all results: seed, row, benchmark, and a folder of several


class Shown(BaseModel):
    """A run that was made again with other code and came out to the bit.

    Attributes:
        made_by, remade_by: digests of the two fingerprints; `made_by` is None if the stored run does not tell its own,
            and then only this run counts as made by the other.
        run: benchmark, row, seed and digest of the run, as its folder is called.
        torch, cpu: the version and the CPU capability with which it was made again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    made_by: str | None = Field(pattern="^[0-9a-f]{12}$")
    remade_by: str = Field(pattern="^[0-9a-f]{12}$")
    run: str = Field(max_length=500)
    torch: str = Field(default="", max_length=100)
    cpu: str = Field(default="", max_length=100)


@dataclass(frozen=True)
class Equivalences:
    """Fingerprints in classes: all that are known to give the same numbers are in one."""

    classes: Mapping[str, str] = field(default_factory=dict)  # by digest, the first digest of its class
    runs: Mapping[str, str] = field(default_factory=dict)  # by run, the digest that gives its numbers

    @staticmethod
    def of(shown: Iterable[Shown]) -> Equivalences:
        """Return the classes that follow from runs, also over several: if A is B and B is C, A is C."""
        classes: dict[str, str] = {}
        runs: dict[str, str] = {}
        for each in shown:
            if each.made_by is None:
                runs[each.run] = each.remade_by
                continue
            first, other = (classes.get(digest, digest) for digest in sorted((each.made_by, each.remade_by)))
            classes |= {each.made_by: first, each.remade_by: first}
            classes = {digest: first if root == other else root for digest, root in classes.items()}
        return Equivalences(classes, runs)

    def code(self, result: Result) -> str | None:
        """Return the class of the code that made a result; None if that is not known."""
        digest = self.runs.get(result.experiment.path) if result.code is None else digest_of(result.code)
        return None if digest is None else self.classes.get(digest, digest)


NONE_KNOWN = Equivalences()


def read_equivalences(folders: Iterable[Path]) -> Equivalences:
    """Return what the files EQUIVALENT in and below `folders` say, and those of the folders above.

    A line or a file that makes no sense is named in a warning and passed over.
    """
    paths = {path.resolve(): path for folder in folders for path in _files(folder)}
    return Equivalences.of(shown for path in paths.values() for shown in _read(path))


def record_equivalence(result_path: Path, result: Result, shown: Shown) -> Path:
    """Append to the file of the folder that holds all results, and return its path."""
    path = equivalences_path(result_path, result)
    if shown not in _read(path):
        line = shown.model_dump_json() + "\n"
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o666)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":  # the last line was cut off
                line = "\n" + line
            os.write(handle, line.encode())  # one write, so that two writers do not mix their lines
            os.fsync(handle)
        finally:
            os.close(handle)
    return path


def equivalences_path(result_path: Path, result: Result) -> Path:
    """Return where equivalences are kept for a result: the nearest file above it, else in the root of its folders."""
    above = [folder / EQUIVALENT for folder in list(result_path.absolute().parents)[: N_PARENTS + 1]]
    for path in above:
        if path.is_file():
            return path
    own = Path(result.experiment.path).parts  # benchmark/row/seed-digest
    folders = result_path.absolute().parent
    return (folders.parents[len(own) - 1] if folders.parts[-len(own) :] == own else folders) / EQUIVALENT


def code_marks(
    rows: Sequence[tuple[str, Sequence[Result]]], same: Equivalences = NONE_KNOWN
) -> tuple[set[str], list[str]]:
    """Return the labels of rows whose runs are of different code, and notes on which differ.

    The notes also name the runs whose code is not known.

    Args:
        rows: labels, each with the runs that are averaged.
    """
    marked: set[str] = set()
    notes: list[str] = []
    unknown: dict[str, str] = {}
    for label, results in rows:
        told = [*_differing(results, same), *_went_on(results)]
        if told:
            marked.add(label)
            notes.append(f"{MARK} {label}: {'; '.join(told)}")
        if missing := [result for result in results if same.code(result) is None]:
            unknown[label] = "" if len(missing) == len(results) else f" (seed{_seeds(missing)})"
    if unknown and not any(unknown.values()) and all(label in unknown for label, _ in rows):
        notes.append("Which code made these runs is not recorded.")
    elif unknown:
        notes.append(f"Not recorded which code made {', '.join(label + part for label, part in unknown.items())}.")
    return marked, notes


def _differing(results: Sequence[Result], same: Equivalences) -> list[str]:
    """Say which runs are of other code than most, and in which modules."""
    by_code: dict[str, list[Result]] = {}
    for result in results:
        if (code := same.code(result)) is not None:
            by_code.setdefault(code, []).append(result)
    most, *others = sorted(by_code.values(), key=len, reverse=True) or [[]]
    return [f"seed{_seeds(group)} by other code than seed{_seeds(most)}{_modules(group, most)}" for group in others]


def _modules(group: Sequence[Result], other: Sequence[Result]) -> str:
    """Say in which modules two groups differ, as far as their fingerprints are stored."""
    mine, theirs = (next((r.code for r in results if r.code is not None), None) for results in (group, other))
    return "" if mine is None or theirs is None else f" ({listed(changed_modules(mine, theirs))})"


def _went_on(results: Sequence[Result]) -> list[str]:
    return [
        f"seed {result.experiment.seed} went on with other code at step {change.step:,}"
        + (f" ({listed(change.changed)})" if change.changed else "")
        for result in results
        for change in result.continued_across
    ]


def _seeds(results: Sequence[Result]) -> str:
    """Seeds after the word 'seed', which gets its plural."""
    seeds = sorted({result.experiment.seed for result in results})
    if len(seeds) == 1:
        return f" {seeds[0]}"
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"s {seeds[0]}-{seeds[-1]}"
    return f"s {', '.join(map(str, seeds))}"


def _files(folder: Path) -> list[Path]:
    above = [parent / EQUIVALENT for parent in list((folder / EQUIVALENT).absolute().parents)[1 : N_PARENTS + 1]]
    return [*sorted(folder.rglob(EQUIVALENT)), *(path for path in above if path.is_file())]


def _read(path: Path) -> list[Shown]:
    if not path.is_file():  # also a pipe, which would never end
        return []
    found: list[Shown] = []
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        lines = path.read_bytes().splitlines()
    except (OSError, ValueError) as error:
        warnings.warn(f"{path} is passed over: {error}", stacklevel=2)
        return []
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(Shown.model_validate_json(line))
        except ValidationError as error:
            reason = str(error.errors()[0]["msg"])
            warnings.warn(f"{path}, line {i} is no equivalence ({reason}) and is passed over", stacklevel=2)
    return found
