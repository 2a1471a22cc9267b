"""Bytes that a pickle holds for what was learned: a checkpoint, and no object of Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def to_bytes(save: Callable[[Path], None]) -> bytes:
    """Return the content of the file that `save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner"
        save(path)
        return path.read_bytes()


def from_bytes(content: bytes, load: Callable[[Path], T]) -> T:
    """Return what `load` reads from a file of this content; CorruptCheckpoint if that is damaged."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner"
        path.write_bytes(content)
        return load(path)
