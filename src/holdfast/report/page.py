"""docs/results.md: every table of the paper with our numbers and verdicts, made from stored results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from holdfast.report.rendering import markdown, numbers, sources, verdicts
from holdfast.report.tables import Table

OPENING = """\
# The paper's tables, with our numbers beside

This page is written by `{command}` from the stored results and is not edited by hand.

Means are over seeds, with the population deviation where there are several; Δ is our mean less the paper's. A number
leads to the file of its first run, which holds the whole configuration; the runs of all seeds stand below each table.
– is what was not run or not printed. † marks runs of another configuration than the size of the table, named above it.
The best of a column is bold only if it beats the runner-up in a paired t-test over the seeds that both have (at least
two, p < 0.05); bounds do not compete, nor does what is marked †.

A number is *reproduced* if it is no further from the paper's than our deviation, the paper's and half of the paper's
last printed digit together; else it is *above* or *below* (of F_T and LTR, less is better). Where seeds are fewer than
in full, the verdict says so: another seed may change it. A number is *not comparable* where the runs have other
settings than the recipe in full, or where the recipe or the row is not the paper's setup; the reasons are given, and
where the number is all the same. DRR has two rows, with the paper's values and with our own; a number counts by the
first.
"""


def results_page(tables: list[Table], *, command: str, base: Path) -> str:
    """Return the page in Markdown; links are relative to the folder `base`."""
    parts = [OPENING.format(command=command).strip(), _count(tables)]
    for table in tables:
        parts.append(f"## {table.id}: {table.title}")
        parts.append(markdown(numbers(table), base))
        if any(cell.runs for row in table.rows for cell in row.cells):
            parts += ["### Runs", markdown(sources(table), base), "### Verdicts", markdown(verdicts(table), base)]
    return "\n\n".join(parts) + "\n"


def counted(tables: list[Table]) -> dict[str, int]:
    """Return how many of the paper's numbers are reproduced, above, below, not comparable or not run, and of all.

    A number beside which two rows of ours stand counts once, by the row with the paper's values.
    """
    cells = [cell for table in tables for row in table.rows if not row.is_again for cell in row.cells if cell.paper]
    found = Counter(cell.verdict.short if cell.verdict else "not run" for cell in cells)
    words = ("reproduced", "above", "below", "not comparable", "not run")
    return {word: found[word] for word in words} | {"all": len(cells)}


def _count(tables: list[Table]) -> str:
    n = counted(tables)
    verdicts = [c.verdict for t in tables for row in t.rows if not row.is_again for c in row.cells if c.verdict]
    few = sum(bool(verdict.n_seeds and not verdict.reasons) for verdict in verdicts)
    told = ", ".join(f"{n[word]} {word}" for word in ("reproduced", "above", "below"))
    return (
        f"Of {n['all']} numbers of the paper: {told} ({few} of these on fewer seeds than in full), "
        f"{n['not comparable']} not comparable, {n['not run']} not run."
    )
