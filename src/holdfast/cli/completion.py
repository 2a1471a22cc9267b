"""Values that a shell completes after an option, read from names of files: torch is not imported for them."""

from __future__ import annotations

from pathlib import Path

from holdfast.parts import FOLDERS, names

KINDS = [*FOLDERS, "probes", "recipes"]  # what `holdfast list` lists


def recipe_files() -> dict[str, Path]:
    """Return the recipes of the package by name."""
    return {path.stem: path for path in sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))}


def recipes_and_streams(incomplete: str) -> list[str]:
    return _beginning(incomplete, sorted({*recipe_files(), *names("streams")}))


def methods(incomplete: str) -> list[str]:
    """Return the methods that continue the last word of a list with commas.

    Example:
        >>> methods("er,sof")
        ['er,soft_gem']
    """
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _beginning(last, names("methods"))]


def sizes(incomplete: str) -> list[str]:
    return _beginning(incomplete, ["cpu", "full"])


def kinds(incomplete: str) -> list[str]:
    return _beginning(incomplete, KINDS)


def backbones(incomplete: str) -> list[str]:
    return _beginning(incomplete, names("backbones"))


def streams(incomplete: str) -> list[str]:
    return _beginning(incomplete, names("streams"))


def _beginning(incomplete: str, known: list[str]) -> list[str]:
    return [name for name in known if name.startswith(incomplete)]
