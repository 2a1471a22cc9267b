"""Errors that were foreseen."""

from __future__ import annotations

from holdfast.core.checkpoint import CorruptCheckpoint
from holdfast.experiments.results import Refused
from holdfast.methods._base import Diverged

OURS = (Refused, CorruptCheckpoint, Diverged)  # whose sentences say all there is to say
FAILURES = (OSError, ValueError, MemoryError, *OURS)  # that end a command with a sentence
