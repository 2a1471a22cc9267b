"""Write the tables of the pages anew from the stored results.

    python docs/refresh.py

Tables stand below a comment that names the folder of their runs, as <!-- results/tuning/turned -->, or, as
<!-- headlines -->, the paper's tables, and end at <!-- end -->. There is one for each protocol. `make pages` also
writes docs/results.md.
"""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.experiments.equivalent import read_equivalences
from holdfast.experiments.protocol import by_protocol
from holdfast.experiments.results import ResultStore
from holdfast.experiments.tables import Rows, compared, markdown, mean_and_spread
from holdfast.report.paper import make_table, paper_tables, stored_runs
from holdfast.report.tables import Cell, Row

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BENCHMARKS = {"table-1": "Permuted MNIST", "table-2": "Split CIFAR", "table-3": "Split CUB", "table-4": "Split AWA"}
_BLOCK = re.compile(r"(?<=<!-- )(results/[\w/]+|headlines) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def refreshed(page: str) -> str:
    """The text of a page with its tables as the stored results have them."""
    return _BLOCK.sub(lambda found: f"{found[1]} -->\n\n{_tables(found[1])}\n\n", page)


def _tables(name: str) -> str:
    if name == "headlines":
        return markdown(headlines())
    groups = by_protocol(ResultStore(ROOT / name).results())
    same = read_equivalences([ROOT / name])
    return "\n\n".join(compared(protocol.heading, results, same) for protocol, results in groups.items())


def headlines() -> Rows:
    """DRR on each benchmark, here and in the paper, and the best of the other methods that the paper has."""
    runs = stored_runs([ROOT / "results"])
    lines = []
    for id, benchmark in BENCHMARKS.items():
        paper = paper_tables()[id]
        rows = [row for row in make_table(paper, runs, "cpu").rows if not row.is_bound]
        (drr,) = (row for row in rows if row.name == "drr")
        published = {line[0] for line in paper.rows}
        other = max((row for row in rows if row.label in published - {drr.label}), key=_accuracy)
        printed = drr.cells[0].paper
        told = f"{other.label} {_mean(other.cells[0])}"
        lines.append([benchmark, _mean(drr.cells[0]), printed.text if printed else "-", told])
    return ["A_T (%)", "DRR", "DRR in the paper", "best other row of the paper, run here"], lines


def _accuracy(row: Row) -> float:
    return -1.0 if row.cells[0].mean is None else row.cells[0].mean


def _mean(cell: Cell) -> str:
    n = len(cell.values)
    return f"{mean_and_spread(list(cell.values.values()), 1, 2)} ({n} seed{'s' if n > 1 else ''})"


def main() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := refreshed(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
