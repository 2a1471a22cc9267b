"""Write the tables and numbers of the pages anew from the stored results.

    python docs/refresh.py

Tables stand below a comment that names the folder of their runs, as <!-- results/tuning/turned -->, and end at
<!-- end -->. There is one for each protocol. Below <!-- headlines --> stand the paper's tables, and below
<!-- equal terms --> the recipes `equal_*`. A number in prose stands in a span; `spans.py` says how. `make pages` also
writes docs/results.md.
"""

from __future__ import annotations

import re
from pathlib import Path

from equal_terms import equal_terms
from holdfast.experiments.equivalent import read_equivalences
from holdfast.experiments.protocol import by_protocol
from holdfast.experiments.results import ResultStore
from holdfast.experiments.tables import Rows, compared, markdown, mean_and_spread
from holdfast.report.page import counted
from holdfast.report.tables import Cell, Row, Table
from spans import filled, tables

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BENCHMARKS = {"table-1": "Permuted MNIST", "table-2": "Split CIFAR", "table-3": "Split CUB", "table-4": "Split AWA"}
WORDS = ("reproduced", "above", "below", "not comparable", "not run")
_BLOCK = re.compile(r"(?<=<!-- )(results/[\w/.]+|headlines|equal terms) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def refreshed(page: str) -> str:
    """Return the text of a page with its tables and numbers as the stored results have them."""
    return filled(_BLOCK.sub(lambda found: f"{found[1]} -->\n\n{_tables(found[1])}\n\n", page))


def _tables(name: str) -> str:
    if name == "headlines":
        return markdown(headlines())
    if name == "equal terms":
        return markdown(equal_terms())
    if name.endswith(".md"):
        return (ROOT / name).read_text(encoding="utf-8").split("\n\n")[1].strip()
    groups = by_protocol(ResultStore(ROOT / name).results())
    same = read_equivalences([ROOT / name])
    return "\n\n".join(compared(protocol.heading, results, same) for protocol, results in groups.items())


def headlines() -> Rows:
    """DRR on each benchmark, here and in the paper, the best other method, and what became of the paper's numbers.

    The last line counts the numbers of all the paper's tables.
    """
    lines = []
    for id, benchmark in BENCHMARKS.items():
        rows = [row for row in tables()[id].rows if not row.is_bound]
        literal, tuned = (next(row for row in rows if row.name == name) for name in ("drr_literal", "drr"))
        others = [row for row in rows if row not in (literal, tuned) and any(cell.paper for cell in row.cells)]
        other = max(others, key=_accuracy)
        printed = tuned.cells[0].paper
        told = [_mean(literal.cells[0]), _mean(tuned.cells[0]), printed.text if printed else "-"]
        lines.append([benchmark, *told, f"{other.label} {_mean(other.cells[0])}", _fates([tables()[id]])])
    lines.append([f"all {len(tables())} tables", *["-"] * 4, _fates([*tables().values()])])
    header = ["A_T (%)", "DRR, the paper's values", "DRR, as tuned here", "DRR in the paper"]
    header += ["best other row of the paper, run here", f"the paper's numbers: {', '.join(WORDS)}"]
    return header, lines


def _fates(found: list[Table]) -> str:
    n = counted(found)
    return f"{', '.join(str(n[word]) for word in WORDS)} of {n['all']}"


def _accuracy(row: Row) -> float:
    return -1.0 if row.cells[0].mean is None else row.cells[0].mean


def _mean(cell: Cell) -> str:
    n = len(cell.values)
    if not n:
        return "not run"
    return f"{mean_and_spread(list(cell.values.values()), 1, 2)} ({n} seed{'s' if n > 1 else ''})"


def main() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := refreshed(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
