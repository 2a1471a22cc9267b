"""Errors that end a command: a sentence, or the lines of a user's own code that the error came through."""

from __future__ import annotations

import os
import traceback
from typing import NamedTuple

from holdfast.parts import Unknown, foreign_frames


class Ending(NamedTuple):
    """Text to print at the end of a command, and its exit code."""

    text: str
    code: int


def end_of(error: Exception) -> Ending | None:
    """Return how `error` ends a command; None if nobody foresaw it, which is a defect of this package."""
    if isinstance(error, Unknown):
        return Ending("\n".join([_sentence(error), *_lines_of(error)]), code=2)
    from holdfast.cli.failures import FAILURES, OURS  # which import torch

    lines = [] if isinstance(error, OURS) else _lines_of(error)
    if lines:
        raised = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        return Ending("\n".join(["holdfast: an error in code of your own", *lines, raised]), code=1)
    return Ending(_sentence(error), code=1) if isinstance(error, FAILURES) else None


def one_line(message: object) -> str:
    """Write a message, which may hold names of files, in one line."""
    return " ".join(str(message).splitlines())


def _sentence(error: Exception) -> str:
    if isinstance(error, MemoryError) and not str(error):
        return "holdfast: out of memory: ask for less, as with --n-tasks, a smaller batch or fewer runs at once"
    if isinstance(error, OSError) and error.errno and error.strerror == os.strerror(error.errno):  # the system's words
        place = "" if error.filename is None else f" '{one_line(error.filename)}'"
        return f"holdfast: cannot read or write{place}: {error.strerror}"
    return f"holdfast: {one_line(error)}"


def _lines_of(error: Exception) -> list[str]:
    lines = []
    for frame in foreign_frames(error):
        lines += [f"  {frame}", *([f"    {frame.text}"] if frame.text else [])]
    return lines
