"""Runs that have begun and are not finished."""

from __future__ import annotations

import fcntl
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.checkpoint import CHECKPOINT, CorruptCheckpoint, read_plain
from holdfast.experiments.results import EXPERIMENT, LOCK, RESULT
from holdfast.experiments.stored_json import parse, read_text


@dataclass(frozen=True)
class UnderWay:
    """A run that is being made, or was stopped before its end.

    Attributes:
        step, n_steps: batches learned by its last checkpoint, and of how many; None before the first checkpoint.
        running: a process holds its folder now.
        age: seconds since its last checkpoint, or since it began.
    """

    folder: Path
    benchmark: str
    row: str
    seed: int
    step: int | None
    n_steps: int | None
    running: bool
    age: float

    @property
    def line(self) -> str:
        """The run in one line."""
        name = f"{self.benchmark} {self.row} seed {self.seed}"
        if self.step is None or self.n_steps is None:
            how_far = "before its first checkpoint"
        else:
            how_far = f"step {self.step:,} of {self.n_steps:,}, saved {duration(self.age)} ago"
        return f"{name}: {'running' if self.running else 'stopped'}, {how_far}"


def under_way(root: Path) -> list[UnderWay]:
    """Find the runs below a folder that are not finished; what cannot be read is named in a warning."""
    found = []
    for path in sorted(root.rglob(EXPERIMENT)):
        if (path.parent / RESULT).exists():
            continue
        try:
            found.append(_read(path.parent))
        except (OSError, ValueError) as error:
            warnings.warn(f"{path} tells of no run: {error}", stacklevel=2)
    return found


def _read(folder: Path) -> UnderWay:
    stated = parse(read_text(folder / EXPERIMENT))
    if not isinstance(stated, dict) or not all(isinstance(stated.get(name), str) for name in ("benchmark", "row")):
        raise ValueError("it states no experiment")
    seed = stated.get("seed")
    if not isinstance(seed, int):
        raise ValueError("it states no seed")
    checkpoint = folder / CHECKPOINT
    step = n_steps = None
    newest = folder / EXPERIMENT
    if checkpoint.exists():
        newest = checkpoint
        try:
            plain = read_plain(checkpoint)
        except CorruptCheckpoint:  # which the run itself will tell when it goes on
            plain = {}
        step, n_steps = (_count(plain.get(name)) for name in ("n_steps", "total_steps"))
    age = max(0.0, time.time() - newest.stat().st_mtime)
    return UnderWay(folder, stated["benchmark"], stated["row"], seed, step, n_steps, _is_held(folder / LOCK), age)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _is_held(path: Path) -> bool:
    """Tell whether a process holds the lock."""
    try:
        with path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock, so nobody holds it
        return False
    return False


def duration(seconds: float) -> str:
    """Write seconds in the largest fitting unit.

    Example:
        >>> duration(59.4), duration(90), duration(7200)
        ('59 s', '2 min', '2 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.0f} h"
