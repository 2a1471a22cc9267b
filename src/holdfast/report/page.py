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
settings than the recipe in full, or where the recipe is not the paper's setup; the reasons are given, and where the
number is all the same.
"""


def results_page(tables: list[Table], *, command: str, base: Path) -> str:
    """The page in Markdown; links are relative to the folder `base`."""
    parts = [OPENING.format(command=command).strip(), _count(tables)]
    for table in tables:
        parts.append(f"## {table.id}: {table.title}")
        parts.append(markdown(numbers(table), base))
        if any(cell.runs for row in table.rows for cell in row.cells):
            parts += ["### Runs", markdown(sources(table), base), "### Verdicts", markdown(verdicts(table), base)]
    return "\n\n".join(parts) + "\n"


def _count(tables: list[Table]) -> str:
    cells = [cell for table in tables for row in table.rows for cell in row.cells]
    found = Counter(cell.verdict.short for cell in cells if cell.verdict)
    few = sum(bool(cell.verdict and cell.verdict.n_seeds and not cell.verdict.reasons) for cell in cells)
    told = ", ".join(f"{found[word]} {word}" for word in ("reproduced", "above", "below"))
    n_printed = sum(cell.paper is not None for cell in cells)
    return (
        f"Of {n_printed} numbers of the paper: {told} ({few} of these on fewer seeds than in full), "
        f"{found['not comparable']} not comparable, {n_printed - found.total()} not run."
    )
