"""Consoles that print what files and users say, and obey none of it."""

from __future__ import annotations

import unicodedata
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

KEPT = "\n\t"
UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}  # control, direction, half characters, private, line ends


def printable(text: str) -> str:
    r"""Return the text with control characters written out, as `\x1b` for the escape character.

    Example:
        >>> print(printable("er \x1b[2J"))
        er \x1b[2J
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter.encode("unicode_escape").decode() if _is_unprintable(letter) else letter for letter in text)


def _is_unprintable(letter: str) -> bool:
    return letter not in KEPT and unicodedata.category(letter) in UNPRINTABLE


def console(**options: Any) -> Console:
    """Return a console of rich that takes no brackets in texts for styles, and no colons for pictures.

    Example:
        >>> console(width=20).print("[red]:smile:")
        [red]:smile:
    """
    made = Console(markup=False, emoji=False, highlight=False, **options)
    made.push_render_hook(_WritesOut())
    return made


class _WritesOut(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printable(renderable) for renderable in renderables]


class _Printable:
    """Something to print, every text in it written out; the control codes of rich itself are left."""

    def __init__(self, renderable: ConsoleRenderable) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.renderable, options):
            yield Segment(text if control else printable(text), style, control)
