"""Tables as text: for a terminal, in Markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from holdfast.experiments.tables import markdown as markdown_rows
from holdfast.experiments.tables import mean_and_spread
from holdfast.report.fitting import UNLIMITED, fitting, longest, not_shown
from holdfast.report.tables import Cell, Column, Row, Run, Table

NOTHING = "–"


@dataclass(frozen=True)
class Piece:
    """Words in a field of a grid: bold or not, and the runs behind them, to the first of which they lead."""

    text: str
    bold: bool = False
    runs: tuple[Run, ...] = ()


Field = tuple[Piece, ...]


@dataclass(frozen=True)
class Grid:
    """Table ready to print: fields under a header, notes above and notes below.

    `alignment` is as LaTeX's 'lrr'.
    """

    title: str
    notes: tuple[str, ...]
    alignment: str
    header: list[str]
    lines: list[list[Field]]
    below: tuple[str, ...] = ()


def numbers(table: Table) -> Grid:
    """Our numbers, the paper's and their difference in each column."""
    header, alignment = [table.named], "l"
    for column in table.columns:
        if not column.digits:
            titles, sides = [f"{column.title} (paper)"], "l"
        elif column.is_printed:
            titles, sides = [column.title, "paper", "Δ"], "rrr"
        else:
            titles, sides = [column.title], "r"
        header, alignment = header + titles, alignment + sides
    lines: list[list[Field]] = []
    for row in table.rows:
        line: list[Field] = [(Piece(row.label),)]
        for column, cell in zip(table.columns, row.cells, strict=True):
            line += _fields(column, cell)
        lines.append([*line, *_counts(row)])
    counts = ["seeds", "tuning runs"][: len(_counts(table.rows[0]))] if table.rows else ["seeds"]
    alignment += "r" * len(counts)
    return Grid(f"{table.id}: {table.title}", table.notes, alignment, [*header, *counts], lines, table.below)


def ours(table: Table) -> Grid:
    """Our numbers alone, where the paper prints none."""
    lines: list[list[Field]] = []
    for row in table.rows:
        line: list[Field] = [(_ours(column, cell),) for column, cell in zip(table.columns, row.cells, strict=True)]
        lines.append([(Piece(row.label),), *line, (Piece(_n_seeds(row)),)])
    header = [table.named, *(column.title for column in table.columns), "seeds"]
    return Grid(f"{table.id}: {table.title}", table.notes, f"l{'r' * len(table.columns)}r", header, lines)


def verdicts(table: Table) -> Grid:
    """Return a line for each number that the paper has too: its verdict, or why the two must not be compared."""
    lines: list[list[Field]] = []
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell.verdict is None or cell.paper is None:
                continue
            where = {"reproduced": "within the spreads"}.get(cell.verdict.word, cell.verdict.word)
            why = "; ".join([*cell.verdict.remarks, *([f"the number is {where}"] if cell.verdict.reasons else [])])
            label, told = (Piece(row.label), Piece(column.title)), (cell.paper.text, cell.verdict.short, why)
            lines.append([(piece,) for piece in (*label, _ours(column, cell), *map(Piece, told))])
    notes = () if lines else ("No run is stored for a number of the paper.",)
    header = [table.named, "column", "ours", "paper", "verdict", "why"]
    return Grid(f"{table.id}: {table.title}", notes, "llrrll", header, lines)


def sources(table: Table) -> Grid:
    """Return the runs behind each row, by seed, with the versions that they were made with."""
    lines: list[list[Field]] = []
    for row in table.rows:
        runs = {run.path: run for cell in row.cells for run in cell.runs}.values()
        if runs:
            links = tuple(Piece(str(run.seed), runs=(run,)) for run in runs)
            versions = "; ".join(dict.fromkeys(run.versions for run in runs))
            lines.append([(Piece(row.label),), links, (Piece(versions),)])
    return Grid(f"{table.id}: {table.title}", (), "lll", [table.named, "runs, by seed", "versions"], lines)


def terminal(grid: Grid, width: int = UNLIMITED) -> RenderableType:
    """Return a table for a terminal; a number leads to the file of its run, where the terminal can follow.

    Columns that do not fit into `width` are left out and named below the table.
    """

    def make(places: list[int]) -> RichTable:
        table = RichTable(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        for i in places:
            texts = [grid.header[i], *(_rich(line[i]).plain for line in grid.lines)]
            if grid.alignment[i] == "l":
                widest = longest(word for text in texts for word in text.split())
                table.add_column(grid.header[i], min_width=widest, overflow="fold")
            else:
                table.add_column(grid.header[i], justify="right", no_wrap=True, min_width=longest(texts))
        for line in grid.lines:
            table.add_row(*(_rich(line[i]) for i in places))
        return table

    notes = [Text(note) for note in grid.notes]
    below = [Text(line) for line in grid.below]
    if not grid.lines:
        return Group(Text(grid.title, style="italic"), *notes, "", *below)
    table, missing = fitting(grid.header, make, width, last=["seeds"], beside=["paper", "Δ"])
    if missing:
        below = [Text(not_shown(missing, width, "a wider window or --format csv shows all")), *below]
    return Group(Text(grid.title, style="italic"), *notes, table, *below)


def markdown(grid: Grid, base: Path) -> str:
    """Return a table in Markdown, without the title; links are relative to the folder `base`."""
    notes = "\n".join(f"- {note}" for note in grid.notes)
    lines = [[" ".join(_markdown(piece, base) for piece in field) for field in line] for line in grid.lines]
    table = markdown_rows((grid.header, lines), grid.alignment) if lines else ""
    below = "\n".join(f"- {line}" for line in grid.below)
    return "\n\n".join(part for part in (notes, table, below) if part)


def latex(grid: Grid, base: Path) -> str:
    """Return a table in LaTeX with booktabs; runs stand in comments beside their row, relative to `base`."""
    caption = " ".join([f"{grid.title}.", *grid.notes])
    lines = []
    for line in grid.lines:
        runs = list(dict.fromkeys(run.address(base) for field in line for piece in field for run in piece.runs))
        comment = f"  % {' '.join(runs)}" if runs else ""
        lines.append(" & ".join(" ".join(map(_latex, field)) for field in line) + rf" \\{comment}")
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{escape_latex(caption)}}}",
            rf"\begin{{tabular}}{{{grid.alignment}}}",
            r"\toprule",
            " & ".join(map(escape_latex, grid.header)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\footnotesize {escape_latex(line)}" for line in grid.below),
            r"\end{table}",
        ]
    )


HTML_STYLE = """<style>
.holdfast-table table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.holdfast-table :is(th, td) { padding: 0.1em 0.6em; text-align: right; }
.holdfast-table .l { text-align: left; }
</style>"""


def as_html(grid: Grid, base: Path) -> str:
    """Return a piece of HTML that needs nothing else; links are relative to the folder `base`."""
    notes = [f"<p>{html.escape(note)}</p>" for note in grid.notes]
    head = "".join(
        f'<th scope="col" class="{side}">{html.escape(name)}</th>'
        for side, name in zip(grid.alignment, grid.header, strict=True)
    )
    body = [f"<tr>{_html_line(line, grid.alignment, base)}</tr>" for line in grid.lines]
    return "\n".join(
        [
            '<section class="holdfast-table">',
            HTML_STYLE,
            *notes,
            "<table>",
            f"<caption>{html.escape(grid.title)}</caption>",
            f"<thead><tr>{head}</tr></thead>",
            "<tbody>",
            *body,
            "</tbody>",
            "</table>",
            *(f"<p>{html.escape(line)}</p>" for line in grid.below),
            "</section>",
        ]
    )


CSV_HEADER = [
    "table", "row", "label", "column", "mean", "std", "seeds", "paper_mean", "paper_std", "difference", "best",
    "departures", "verdict", "number", "why", "runs",
]  # fmt: skip


_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet takes a text for that begins so


def as_csv(tables: list[Table], base: Path) -> str:
    """Return a line for each cell, with all that is known of it; numbers are not rounded.

    A text that a spreadsheet would calculate has a ' before it.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                verdict = cell.verdict
                writer.writerow(
                    for_spreadsheets(each)
                    for each in [
                        table.id,
                        row.name,
                        row.label,
                        column.title,
                        cell.mean,
                        cell.std,
                        " ".join(map(str, cell.values)),
                        cell.paper.mean if cell.paper else cell.paper_text,
                        cell.paper.std if cell.paper else None,
                        cell.difference,
                        "yes" if cell.best else "no",
                        "; ".join(cell.departures),
                        verdict.short if verdict else None,
                        verdict.word if verdict else None,
                        "; ".join(verdict.remarks) if verdict else None,
                        " ".join(run.address(base) for run in cell.runs),
                    ]
                )
    return file.getvalue()


def for_spreadsheets(value: Any) -> Any:
    """Return a cell of a CSV file; a text that a spreadsheet would calculate gets a ' before it, a number stays.

    Example:
        >>> [for_spreadsheets(value) for value in ("=1+1", "-1", -1, "er")]
        ["'=1+1", '-1', -1, 'er']
    """
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    return value if _NUMBER.fullmatch(value) else f"'{value}"


LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "–": "--", "Δ": r"$\Delta$", "ε": r"$\epsilon$", "†": r"$\dagger$", "✓": r"$\checkmark$",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Return the text with all that means something to LaTeX written out."""
    tilde = "H\u0303"  # two characters, the second put above the first
    return r"$\tilde{H}$".join("".join(LATEX.get(letter, letter) for letter in part) for part in text.split(tilde))


def _counts(row: Row) -> list[Field]:
    """Return the number of seeds of a row and, if known, the number of tuning runs."""
    counts = [_n_seeds(row)] if row.n_tuning is None else [_n_seeds(row), str(row.n_tuning or "none")]
    return [(Piece(count),) for count in counts]


def _n_seeds(row: Row) -> str:
    counts = sorted({len(cell.values) for cell in row.cells if cell.values})
    return ", ".join(map(str, counts)) or NOTHING


def _fields(column: Column, cell: Cell) -> list[Field]:
    if not column.is_printed:
        return [(_ours(column, cell),)]
    if not column.digits:
        return [(Piece(cell.paper_text or NOTHING),)]
    # Runs with other settings than the table's get no difference: it would say nothing about the paper.
    told = cell.difference is not None and not cell.departures
    difference = f"{cell.difference:+.{column.digits}f}" if told else NOTHING
    return [(_ours(column, cell),), (Piece(cell.paper.text if cell.paper else NOTHING),), (Piece(difference),)]


def _ours(column: Column, cell: Cell) -> Piece:
    if not cell.values:
        return Piece(NOTHING)
    text = mean_and_spread(list(cell.values.values()), 1, column.digits)
    return Piece(text + ("†" if cell.departures else ""), cell.best, cell.runs)


def _rich(field: Field) -> Text:
    return Text(" ").join(Text(piece.text, style=_style(piece)) for piece in field)


def _style(piece: Piece) -> Style:
    return Style(bold=piece.bold or None, link=piece.runs[0].path.resolve().as_uri() if piece.runs else None)


def _markdown(piece: Piece, base: Path) -> str:
    text = re.sub(r"([\\`*\[\]<])", r"\\\1", piece.text)
    text = f"**{text}**" if piece.bold else text
    return f"[{text}]({piece.runs[0].address(base)})" if piece.runs else text


def _latex(piece: Piece) -> str:
    text = escape_latex(piece.text)
    return rf"\textbf{{{text}}}" if piece.bold else text


def _html_line(line: list[Field], alignment: str, base: Path) -> str:
    texts = [" ".join(_html(piece, base) for piece in field) for field in line]
    return "".join(f'<td class="{side}">{text}</td>' for side, text in zip(alignment, texts, strict=True))


def _html(piece: Piece, base: Path) -> str:
    text = html.escape(piece.text)
    text = f"<strong>{text}</strong>" if piece.bold else text
    if not piece.runs:
        return text
    first, *_ = piece.runs
    hint = f"seeds {', '.join(str(run.seed) for run in piece.runs)}; the first with {first.versions}"
    return f'<a href="{html.escape(first.address(base))}" title="{html.escape(hint)}">{text}</a>'


Renderer = Callable[[Grid, Path], str]
RENDERERS: dict[str, Renderer] = {"markdown": markdown, "latex": latex, "html": as_html}
