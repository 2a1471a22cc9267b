"""The code behind a result: fingerprints of what learning can reach, now or at an earlier commit."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from holdfast.core.fingerprint import Fingerprint, changed_modules, digest_of, fingerprint, imported_modules
from holdfast.experiments.experiment import Experiment
from holdfast.parts import FOLDERS

PACKAGE = Path(__file__).parents[1]
NAME = "holdfast"
# These functions decide the numbers of a result; the rest of run.py watches, saves and refuses.
RUN = ("_begun", "_learn", "_result")
ROOTS = (f"{NAME}.build", f"{NAME}.learner")
# They print, store and show what was measured; `record` and `probes.record` are one module before and after a move.
APART = frozenset(
    f"{NAME}.experiments.{name}"
    for name in (
        *(
            "facts",
            "flops",
            "foreign",
            "measured",
            "metrics",
            "probing",
            "record",
            "results",
            "stored_json",
            "versions",
        ),
        *("probes._logger", "probes.record", "probes.cost", "probes.timing"),
    )
) | {f"{NAME}.export", f"{NAME}.export.files", f"{NAME}.export.networks"}
# It counts bytes of whatever the learner has, and for that imports parts which this learner may not have.
LEAVES = frozenset({f"{NAME}.experiments.footprint", f"{NAME}.experiments.probes.footprint"})

Sources = Mapping[str, str]  # by the whole name of a module


class Continued(BaseModel):
    """A run that went on with other code than it began with.

    Attributes:
        step: steps done when it went on.
        old, new: digests of the two fingerprints; None where a checkpoint does not say which code made it.
        changed: the modules that are not the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    old: str | None
    new: str
    changed: list[str]


def continued(step: int, old: Fingerprint | None, new: Fingerprint, foreign: Sequence[str] = ()) -> Continued:
    """Return what a result states of going on with other code.

    Args:
        foreign: the files of other packages that are not the same.
    """
    if old is None:
        return Continued(step=step, old=None, new=digest_of(new), changed=[*foreign])
    changed = [*changed_modules(old, new), *foreign]
    return Continued(step=step, old=digest_of(old), new=digest_of(new), changed=changed)


def code_of(experiment: Experiment) -> Fingerprint:
    """Return the fingerprint of all code of this package that the experiment's learning can reach, as it is now.

    Of a part of another package, the modules of this package that it imports count; its own source is a part of the
    experiment.
    """
    sources = package_sources()
    names = _part_names(experiment)
    own = [name for name in names if ":" not in name]
    foreign = [name.partition(":")[0] for name in names if ":" in name]
    own += [module for module in foreign if module in sources]  # of this package, but among none of its folders
    reached = [each for module in foreign for each in _imported_by(module) if each in sources]
    run = (f"{NAME}.experiments.run:{name}" for name in RUN)
    return dict(_cached_fingerprint(tuple(sorted({*ROOTS, *run, *own, *reached}))))


def foreign_names(experiment: Experiment) -> list[str]:
    """Return the parts of an experiment that are code of another package, as 'package.module:Class'."""
    return [name for name in _part_names(experiment) if ":" in name]


def code_at(experiment: Experiment, sources: Sources) -> Fingerprint | None:
    """Return the fingerprint that the experiment had with other sources of this package, as of an earlier commit.

    None if they are too different to tell, or if the experiment has parts of another package.
    """
    for begun in RUN[:1], ("run",):  # a run was once begun by `run` itself
        roots = [*ROOTS, *(f"{NAME}.experiments.run:{name}" for name in (*begun, *RUN[1:])), *_part_names(experiment)]
        with contextlib.suppress(LookupError, SyntaxError):
            return fingerprint(sources, roots, leaves=LEAVES, apart=APART)
    return None


@cache
def package_sources() -> Sources:
    """Return the sources of this package, read once a process."""
    return {_module_name(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}


def sources_at(commit: str, repository: Path) -> Sources:
    """Return the sources of this package at a commit of its repository; ValueError if git does not have it."""
    if not re.fullmatch("[0-9a-f]{7,40}", commit):  # it may be of a file from a stranger, and git takes options
        raise ValueError(f"'{commit}' is no commit: give its hash, 7 to 40 hexadecimal digits")
    command = ["git", "-C", str(repository), "archive", "--format=tar", commit, f"src/{NAME}"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or f"git ended with {done.returncode}"
        raise ValueError(f"no sources at commit {commit} in {repository}: {reason}")
    sources = {}
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and member.name.endswith(".py") else None
            if file is not None:
                sources[_module_name(Path(member.name).relative_to(f"src/{NAME}"))] = file.read().decode("utf-8")
    return sources


def other_code(result_code: Fingerprint | None, experiment: Experiment) -> str:
    """Return in a few words how the code of a stored result is not that of today; '' if it is the same."""
    if result_code is None:
        return "with code that was not recorded"
    changed = changed_modules(result_code, code_of(experiment))
    return f"with other code: {listed(changed)}" if changed else ""


def listed(names: list[str], most: int = 4) -> str:
    """Return names with commas between, the first few of many."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


@cache
def _cached_fingerprint(roots: tuple[str, ...]) -> Fingerprint:
    return fingerprint(package_sources(), roots, leaves=LEAVES, apart=APART)


def _part_names(experiment: Experiment) -> list[str]:
    """Return the modules of an experiment's parts; of a part of another package 'package.module:Class'."""
    return [name if ":" in name else f"{FOLDERS[kind]}.{name}" for kind, name in experiment.named_parts]


def _imported_by(module: str) -> set[str]:
    """Return what a module of another package imports; it has been imported itself by whoever runs the experiment."""
    loaded = sys.modules.get(module)
    if loaded is None:
        return set()
    try:
        return imported_modules(inspect.getsource(loaded), module=module)
    except (OSError, TypeError, SyntaxError):  # typed into an interpreter, or compiled
        return set()


def _module_name(path: Path) -> str:
    """Return the name of the module in a file of this package, whose path is relative to the package."""
    return ".".join((NAME, *path.with_suffix("").parts)).removesuffix(".__init__")
