"""Places of data sets: where they are looked for, and the errors of what is absent or broken there."""

from __future__ import annotations

import os
from pathlib import Path

OWN = "own"  # stands for the name of a data set where the data is the user's own


class MissingData(FileNotFoundError):
    """A data set is not where it is expected; the message says what to do."""


def missing(name: str, root: Path, expected: str) -> MissingData:
    """Return the error for data set `name` (as `holdfast data` calls it), of which `expected` is not in `root`."""
    if name == OWN:
        return MissingData(f"no {expected} in {root}: it was there a moment ago")
    return MissingData(
        f"no {expected} in {root}: run 'holdfast data download {name}', "
        "or give the folder that holds it with --data or HOLDFAST_DATA"
    )


class BrokenData(ValueError):
    """A file of a data set is not what it should be; the message says what to do."""


def broken(name: str, place: Path | str, found: str, expected: str) -> BrokenData:
    """Return the error for data set `name` (as `holdfast data` calls it), where `place` holds the wrong thing."""
    advice = "mend it or take it away" if name == OWN else f"delete the file and run 'holdfast data download {name}'"
    return BrokenData(f"{place}: found {found}, expected {expected}: {advice}")


def data_root(given: Path | None = None) -> Path:
    """Return the folder of the data sets: as given, else HOLDFAST_DATA, else a folder in the user's cache."""
    if given is not None:
        return given
    if folder := os.environ.get("HOLDFAST_DATA"):
        return Path(folder)
    return user_cache() / "data"


def user_cache() -> Path:
    """Return the folder for what holdfast can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
