"""One check of a part, and its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from holdfast.parts import Frame, foreign_frames


class Failed(AssertionError):
    """The part does not hold what the check asks; the message says what was found."""


class Check(NamedTuple):
    """A sentence, and the function that raises unless the sentence holds; it gets an empty folder for its files."""

    sentence: str
    run: Callable[[Path], object]


@dataclass(frozen=True)
class Outcome:
    """Result of one check.

    Attributes:
        message: the error in one line; empty for a check that passed.
        frames: the user's own lines that led to the error, outermost first.
    """

    sentence: str
    outcome: Literal["passed", "failed"]
    seconds: float
    message: str = ""
    frames: tuple[Frame, ...] = ()


def expect(condition: bool, message: str) -> None:
    """Raise Failed with `message` unless `condition` holds.

    Example:
        >>> expect(len("abc") == 3, "three letters are expected")
    """
    if not condition:
        raise Failed(message)


def run_checks(checks: Iterable[Check]) -> Iterator[Outcome]:
    """Run each check in a folder of its own, and yield its outcome.

    Example:
        >>> def fails(folder):
        ...     expect(False, "the memory holds 31 of 30 samples")
        >>> [(one.outcome, one.message) for one in run_checks([Check("it stays small", fails)])]
        [('failed', 'the memory holds 31 of 30 samples')]
    """
    for check in checks:
        started = time.perf_counter()
        try:
            with TemporaryDirectory() as folder:
                check.run(Path(folder))
        except Exception as error:  # whatever the code of a stranger raises is the finding
            said = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            message = " ".join(said.split())
            yield Outcome(
                check.sentence, "failed", time.perf_counter() - started, message, tuple(foreign_frames(error))
            )
        else:
            yield Outcome(check.sentence, "passed", time.perf_counter() - started)
