"""A stream whose runs stop half-way at a gate, so that a test can do something to them just there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.core.batch import Batch
from holdfast.streams._base import Task
from tests.support.toy import Toy

T = TypeVar("T")
LONG = 1.5  # in so many seconds any worker has heard whether it should stop
PATIENCE = 120.0  # seconds after which something waited for will never come


class Gated(Toy):
    """The toy stream; in its second task a run leaves its process id at the gate and waits.

    A run that had to wait goes on a moment after the gate was opened: it has heard of what was said before.
    """

    def __init__(self, data: Path | None = None, *, gate: str, seed: int = 0, tasks: str = "report") -> None:
        super().__init__(data, seed=seed, tasks=tasks)
        second = self.tasks[1]
        self.tasks[1] = _GatedTask(second.id, second.classes, second.train, second.test)
        self.tasks[1].gate = Path(gate)


class _GatedTask(Task):
    gate: Path

    def batch(self, step: int, *, size: int, seed: int) -> Batch:
        if step == 5:
            aside = self.gate / f"{seed}.writing"
            aside.write_text(str(os.getpid()))
            aside.replace(self.gate / str(seed))
            if not (self.gate / "open").exists():
                wait_for(lambda: (self.gate / "open").exists())
                opened_at = (self.gate / "open").stat().st_mtime
                wait_for(lambda: time.time() - opened_at > LONG)
        return super().batch(step, size=size, seed=seed)


def open_gate(gate: Path) -> None:
    (gate / "open").touch()


def at_gate(gate: Path, seed: int) -> int:
    """The process whose run with that seed has come to the gate, once it is there."""
    wait_for(lambda: (gate / str(seed)).exists())
    return int((gate / str(seed)).read_text())


def wait_for(there: Callable[[], T]) -> T:
    """What `there` gives as soon as it is something."""
    last = time.monotonic() + PATIENCE
    while not (found := there()):
        assert time.monotonic() < last, "waited in vain"
        time.sleep(0.01)
    return found
