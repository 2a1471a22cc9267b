"""Advice for an optional package that is missing."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

_OF_EXTRA = re.compile(r"(?P<package>[^;]+?)\s*;.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")


def how_to_install(extra: str) -> str:
    """Return the command that installs the packages of an extra of holdfast.

    The command names the packages and not the extra. An extra is found only where the package index offers holdfast,
    but many people install from a checkout.

    Example:
        >>> how_to_install("digits")
        "pip install 'scikit-learn>=1.4'"
    """
    try:
        stated = [_OF_EXTRA.match(requirement) for requirement in requires("holdfast") or ()]
    except PackageNotFoundError:
        stated = []
    packages = [f"'{found['package']}'" for found in stated if found and found["extra"] == extra]
    return " ".join(["pip install", *(packages or [f"'holdfast[{extra}]'"])])
