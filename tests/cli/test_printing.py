"""What files say is printed, and not obeyed."""

from __future__ import annotations

import io

import pytest
from rich.table import Table

from holdfast.cli.printing import console, printable

ATTACKS = {
    "\x1b[2J\x1b]0;title\x07": r"\x1b[2J\x1b]0;title",  # clears the screen, renames the window; rich drops the bell
    "\x9b31m": r"\x9b31m",  # the same as ESC [ in eight bits
    "over\rwritten\b": "overwritten",  # both are dropped by rich
    "\u202ereversed": r"\u202ereversed",
    "\udc80": r"\udc80",  # of the name of a file that is no text
    "[red]x[/] [/] [link=http://x]": "[red]x[/] [/] [link=http://x]",
    ":bomb:": ":bomb:",
}


@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize("terminal", [True, False])
def test_a_text_is_printed_as_it_stands_wherever_it_stands(text: str, terminal: bool):
    for shown in (text, _table(text)):
        file = io.StringIO()
        console(file=file, force_terminal=terminal, color_system=None, width=80).print(shown)
        assert ATTACKS[text] in file.getvalue()
        assert all(each.isprintable() or each == "\n" for each in file.getvalue())


def _table(text: str) -> Table:
    table = Table(title=text)
    table.add_column(text, no_wrap=True)
    table.add_row(text)
    return table


def test_a_style_of_our_own_still_reaches_the_terminal():
    file = io.StringIO()
    console(file=file, force_terminal=True, color_system="standard").print("x", style="bold")
    assert file.getvalue() == "\x1b[1mx\x1b[0m\n"


def test_letters_of_any_language_stay():
    for text in ("ε-SOFT-GEM ± Δ†", "日本語", "a\tb\n", "é"):
        assert printable(text) == text
