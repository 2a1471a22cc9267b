"""JSON of a stored file, which may be a stranger's: read within bounds, or refused in one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.data.untrusted import read_at_most

MAX_BYTES = 256 * 2**20  # of a file; the largest packed one has some megabytes
MAX_DEPTH = 32
MAX_TEXT = 10_000  # characters of one text
_SHORT = 100  # characters, of which no text has too many
MAX_NUMBER = 2**63 - 1  # a whole number, in either direction


def read_text(path: Path) -> str:
    """Return the text of a regular file in UTF-8 of at most MAX_BYTES; ValueError or OSError naming it.

    Example:
        >>> text = read_text(Path("runs/split_digits/er/1234-0123456789/result.json"))  # doctest: +SKIP
    """
    try:
        return read_at_most(path, MAX_BYTES).decode("utf-8")
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def parse(text: str) -> Any:
    """Return the value of a JSON `text`; ValueError if it is no JSON, too deep, or has absurd numbers or texts.

    Example:
        >>> parse('{"n_steps": 5}')
        {'n_steps': 5}
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from None
    check(content)
    return content


def check(content: Any) -> None:
    """Raise ValueError if a value of JSON is too deep, or has absurd numbers or texts."""
    _check([content], depth=0)


def _check(values: Iterable[Any], depth: int) -> None:
    """Check all values of a list or of an object, its keys among them. Most of what is stored is short."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    for value in values:
        if isinstance(value, str):
            if len(value) > _SHORT or not value.isascii():
                _check_text(value)
        elif isinstance(value, dict):
            _check([*value, *value.values()], depth + 1)
        elif isinstance(value, list):
            _check(value, depth + 1)
        elif isinstance(value, int) and not -MAX_NUMBER <= value <= MAX_NUMBER:
            digits = math.ceil(abs(value).bit_length() * math.log10(2))
            raise ValueError(f"it has a number of {digits} digits")


def _check_text(value: str) -> None:
    if len(value) > MAX_TEXT:
        raise ValueError(f"it has a text of {len(value):,} characters, expected at most {MAX_TEXT:,}")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("it has half a character, which is no text")
