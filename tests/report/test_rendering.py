"""Golden tests: each format of one small table, with everything that has to be escaped somewhere."""

import csv
import io
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.report.rendering import (
    as_csv,
    as_html,
    escape_latex,
    latex,
    markdown,
    numbers,
    ours,
    sources,
    terminal,
    verdicts,
)
from holdfast.report.tables import Cell, Column, Row, Table, parse_printed
from tests.support.made_up_results import run, table

BASE = Path("docs")


def test_markdown_of_numbers():
    assert markdown(numbers(table()), BASE) == (
        "- A note of 5 %.\n"
        "\n"
        "| method | A_T (%) | paper | Δ | F_T | paper | Δ | terms (paper) | seeds |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |\n"
        r"| a&b \<i>\|50%_$#{}~^\\ \[x\]\* | [**71.00±1.00**](../results/a/b/1/result.json) | 70.5±0.50 | +0.50 "
        "| – | 0.03 | – | 2P+MH̃ | 2 |\n"
        "| ε-other | [50.13†](../results/b%20c/1/result.json) | – | – "
        "| [0.100](../results/b%20c/1/result.json) | 0.05±0.010 | +0.050 | – | 1 |"
    )


def test_markdown_of_our_numbers_alone():
    assert markdown(ours(table()), BASE).splitlines()[2:] == [
        "| method | A_T (%) | F_T | terms | seeds |",
        "| --- | ---: | ---: | ---: | ---: |",
        r"| a&b \<i>\|50%_$#{}~^\\ \[x\]\* | [**71.00±1.00**](../results/a/b/1/result.json) | – | – | 2 |",
        "| ε-other | [50.13†](../results/b%20c/1/result.json) | [0.100](../results/b%20c/1/result.json) | – | 1 |",
    ]


def test_markdown_of_verdicts_and_sources():
    assert markdown(verdicts(table()), BASE).splitlines()[2:] == [
        r"| a&b \<i>\|50%_$#{}~^\\ \[x\]\* | A_T (%) | [**71.00±1.00**](../results/a/b/1/result.json) | 70.5±0.50 "
        "| reproduced | 2 of 5 seeds |",
        "| ε-other | F_T | [0.100](../results/b%20c/1/result.json) | 0.05±0.010 | not comparable "
        "| lr=1 instead of 2; 1 of 5 seeds; the number is above |",
    ]
    assert markdown(sources(table()), BASE).splitlines()[2:] == [
        r"| a&b \<i>\|50%_$#{}~^\\ \[x\]\* | [1](../results/a/b/1/result.json) [2](../results/a/b/2/result.json) "
        "| torch 2, commit abc |",
        "| ε-other | [1](../results/b%20c/1/result.json) | torch 2, commit abc |",
    ]


def test_latex():
    assert latex(numbers(table()), Path()) == "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            r"\caption{table-0: Made \& up. A note of 5 \%.}",
            r"\begin{tabular}{lrrrrrrlr}",
            r"\toprule",
            r"method & A\_T (\%) & paper & $\Delta$ & F\_T & paper & $\Delta$ & terms (paper) & seeds \\",
            r"\midrule",
            r"a\&b \textless{}i\textgreater{}|50\%\_\$\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{} [x]* "
            r"& \textbf{71.00$\pm$1.00} & 70.5$\pm$0.50 & +0.50 & -- & 0.03 & -- & 2P+M$\tilde{H}$ & 2 \\"
            "  % results/a/b/1/result.json results/a/b/2/result.json",
            r"$\epsilon$-other & 50.13$\dagger$ & -- & -- & 0.100 & 0.05$\pm$0.010 & +0.050 & -- & 1 \\"
            "  % results/b%20c/1/result.json",
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def test_every_letter_that_means_something_to_latex_is_written_out():
    assert escape_latex(r"\{}$&#_%~^") == (r"\textbackslash{}\{\}\$\&\#\_\%\textasciitilde{}\textasciicircum{}")


class _Reader(HTMLParser):
    """What a browser would show: texts, links and what is bold, with every tag closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.links: list[str] = []
        self.bold: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")
        if tag == "a":
            self.links.append(dict(attributes)["href"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data
        if "strong" in self.open:
            self.bold.append(data)


def test_html_shows_the_texts_as_they_are_and_leads_to_the_runs():
    text = as_html(numbers(table()), BASE)
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.cells[9:] == [
        r"a&b <i>|50%_$#{}~^\ [x]*", "71.00±1.00", "70.5±0.50", "+0.50", "–", "0.03", "–", "2P+MH̃", "2",
        "ε-other", "50.13†", "–", "–", "0.100", "0.05±0.010", "+0.050", "–", "1",
    ]  # fmt: skip
    other = "../results/b%20c/1/result.json"
    assert reader.links == ["../results/a/b/1/result.json", other, other]
    assert reader.bold == ["71.00±1.00"]
    assert "<caption>table-0: Made &amp; up</caption>" in text
    assert 'title="seeds 1, 2; the first with torch 2, commit abc"' in text
    assert "http" not in text  # nothing is fetched


def test_csv_has_a_line_a_cell_with_everything_unrounded():
    header, first, *_, fourth, fifth, _ = csv.reader(io.StringIO(as_csv([table()], Path())))
    assert dict(zip(header, first, strict=True)) == {
        "table": "table-0",
        "row": "a",
        "label": r"a&b <i>|50%_$#{}~^\ [x]*",
        "column": "A_T (%)",
        "mean": "71.0",
        "std": "1.0",
        "seeds": "1 2",
        "paper_mean": "70.5",
        "paper_std": "0.5",
        "difference": "0.5",
        "best": "yes",
        "departures": "",
        "verdict": "reproduced",
        "number": "reproduced",
        "why": "2 of 5 seeds",
        "runs": "results/a/b/1/result.json results/a/b/2/result.json",
    }
    assert fourth[header.index("mean")] == "50.126"
    assert fourth[header.index("departures")] == "lr=1 instead of 2"
    assert [fifth[header.index(name)] for name in ("verdict", "number", "why")] == [
        "not comparable",
        "above",
        "lr=1 instead of 2; 1 of 5 seeds",
    ]


def printed(grid, **settings) -> str:
    file = io.StringIO()
    Console(file=file, width=200, highlight=False, **settings).print(terminal(grid))
    return file.getvalue()


def test_a_terminal_shows_the_notes_above_the_numbers():
    lines = [line.rstrip() for line in printed(numbers(table())).splitlines() if line.strip()]
    assert lines[:2] == ["table-0: Made & up", "A note of 5 %."]
    assert lines[2].split() == ["method", "A_T", "(%)", "paper", "Δ", "F_T", "paper", "Δ", "terms", "(paper)", "seeds"]
    assert lines[4].endswith("71.00±1.00  70.5±0.50  +0.50      –        0.03       –  2P+MH̃              2")
    assert lines[4].lstrip().startswith(r"a&b <i>|50%_$#{}~^\ [x]*")
    assert "\x1b" not in "".join(lines)


def test_a_terminal_that_can_shows_bold_and_follows_links():
    text = printed(numbers(table()), force_terminal=True, color_system="standard", legacy_windows=False)
    assert "\x1b[1m" in text
    assert Path("results/a/b/1/result.json").resolve().as_uri() in text


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_csv_has_no_text_that_a_spreadsheet_calculates_and_numbers_stay_numbers(start):
    evil = f'{start}HYPERLINK("http://x")'
    column = Column(evil, 2, "more")
    cell = Cell({1: -50.5}, (run(1, evil + "/{}/result.json"),), parse_printed("1.5"), departures=(evil,))
    lines = as_csv([Table(evil, "t", "method", (column,), (Row(evil, evil, (cell,)),))], Path())
    _, (*texts, mean, std, seeds, paper, paper_std, difference, best, told, _, _, _, runs) = csv.reader(
        io.StringIO(lines, newline="")
    )
    assert texts == [f"'{evil}"] * 4
    assert told == f"'{evil}"
    assert (float(mean), float(std), seeds, float(paper), paper_std, best) == (-50.5, 0.0, "1", 1.5, "", "no")
    assert float(difference) == -52.0
    assert runs[0] in "'%"  # an address is quoted
    assert not any(field.startswith(("=", "+", "@", "\t", "\r", "\n")) for field in (*texts, told, runs))


def test_an_address_of_a_folder_whose_name_is_no_text_can_be_written():
    made = run(1, "results/\udcff/{}/result.json")
    assert "results/%FF/1/result.json" in as_csv([Table("t", "t", "m", (Column("c", 1),), (row_of(made),))], Path())


def row_of(made):
    return Row("a", "a", (Cell({1: 1.0}, (made,)),))


def test_what_stands_below_a_table_and_its_tuning_runs_are_in_every_format():
    made = table()
    rows = tuple(replace(row, n_tuning=n) for row, n in zip(made.rows, (62, 0), strict=True))
    grid = numbers(replace(made, rows=rows, below=("er: lr=0.1 & <b>", "drr: lr=0.2")))
    assert grid.header[-2:] == ["seeds", "tuning runs"]
    assert [line[-1][0].text for line in grid.lines] == ["62", "none"]
    assert markdown(grid, BASE).endswith("| none |\n\n- er: lr=0.1 & <b>\n- drr: lr=0.2")
    assert r"\par\footnotesize er: lr=0.1 \& $<$b$>$" in latex(grid, BASE).replace(r"\textless{}", "$<$").replace(
        r"\textgreater{}", "$>$"
    )
    assert "</table>\n<p>er: lr=0.1 &amp; &lt;b&gt;</p>" in as_html(grid, BASE)
    assert printed(grid).rstrip().endswith("drr: lr=0.2")
