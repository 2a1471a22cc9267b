"""Tables as wide as a window: whole columns are left out where they do not fit, and never digits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

UNLIMITED = 100_000  # columns of a window


def fitting(
    header: Sequence[str],
    make: Callable[[list[int]], Table],
    width: int,
    *,
    last: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> tuple[Table, list[str]]:
    """Return the table with as many columns as fit into `width`, and the names of the columns that it lacks.

    The first column and the one beside it always stay. Others go from the right, so that what matters most stands left.

    Args:
        make: makes the table of some columns, given by their places in `header`.
        last: columns that go only when no others are left to go.
        beside: names of columns that belong to the column on their left, and go with it.
    """
    units: list[list[int]] = []
    for i, name in enumerate(header):
        if units and name in beside:
            units[-1].append(i)
        else:
            units.append([i])
    kept = list(units)
    going = sorted(units[2:], key=lambda unit: (header[unit[0]] in last, -unit[0]))  # in the order in which they go
    while True:
        table = make([i for unit in kept for i in unit])
        if not going or smallest_width(table) <= width:
            break
        kept.remove(going.pop(0))
    return table, [header[unit[0]] for unit in units if unit not in kept]


def longest(texts: Iterable[str]) -> int:
    """Return the width of the widest text on a terminal."""
    return max(map(cell_len, texts), default=0)


def smallest_width(table: Table) -> int:
    """Return the width below which the table would be cut."""
    console = Console(width=UNLIMITED, markup=False, emoji=False, highlight=False)  # brackets are text
    return Measurement.get(console, console.options, table).minimum


def not_shown(missing: Sequence[str], width: int, advice: str) -> str:
    """Say in one line which columns do not fit.

    Example:
        >>> not_shown(["LTR", "seconds"], 40, "--columns chooses others")
        'not shown in 40 columns: LTR, seconds (--columns chooses others)'
    """
    listed = ", ".join(missing) if len(missing) < 8 else f"{', '.join(missing[:3])} … {missing[-1]}"
    return f"not shown in {width} columns: {listed} ({advice})"
