"""Errors that end a command with a sentence instead of a traceback."""

from __future__ import annotations

from holdfast.core.checkpoint import CorruptCheckpoint
from holdfast.experiments.results import Refused
from holdfast.methods._base import Diverged

FAILURES = (OSError, ValueError, Refused, CorruptCheckpoint, Diverged, MemoryError)
