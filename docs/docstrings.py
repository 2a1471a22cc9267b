"""Extension of Griffe: docstrings as the Google style has them."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SEVERAL = re.compile(r"^(?P<indent> +)(?P<first>\w+)(?P<others>(?:, \w+)+): (?P<text>.*)$", flags=re.MULTILINE)


class GoogleStyle(griffe.Extension):
    """Show doctests as code, and give each of several parameters that share a line its own."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = _SEVERAL.sub(_apart, text)


def _apart(found: re.Match[str]) -> str:
    others = found["others"].removeprefix(", ").split(", ")
    lines = [f"{found['indent']}{name}: see `{found['first']}`." for name in others]
    return "\n".join([*lines, f"{found['indent']}{found['first']}: {found['text']}"])
