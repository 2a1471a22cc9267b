"""Every number in the README and the docs comes from a stored result."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import refresh
import spans
from holdfast.experiments.probes.record import RECORD_PACKED, read_record
from holdfast.experiments.results import ResultStore
from holdfast.experiments.tables import mean_and_spread
from holdfast.report.figures import make_figure, paper_figures, with_maps
from holdfast.report.paper import paper_tables

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = {str(path.relative_to(ROOT)): path for path in refresh.PAGES}
WRITTEN_WHOLE = "docs/results.md"  # tested as a whole, with the command that writes it
TABLES = r"<!-- (?:results/[\w/.]+|headlines|equal terms) -->.*?<!-- end -->"


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_tables_and_numbers_are_those_of_the_stored_results(page):
    text = PAGES[page].read_text()
    assert refresh.refreshed(text) == text, f"write {page} again: make pages"


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {WRITTEN_WHOLE}))
def test_no_decimal_and_no_share_is_typed_by_hand(page):
    assert re.findall(r".{0,60}(?:\d\.\d|\d ?%).{0,20}", _typed(PAGES[page].read_text())) == []


def test_the_readme_says_what_became_of_the_papers_numbers():
    verdicts = [
        cell.verdict.short if cell.verdict else "not run"
        for table in spans.tables().values()
        for row in table.rows
        for cell in row.cells
        if cell.paper and row.name != "drr"  # beside which the paper's numbers stand again
    ]
    words = ("reproduced", "above", "below", "not comparable", "not run")
    counts = ", ".join(str(verdicts.count(word)) for word in words)
    text = PAGES["README.md"].read_text()
    assert f"the paper's numbers: {', '.join(words)} |" in text
    assert f"| {counts} of {len(verdicts)} |" in text


BENCHMARKS = [
    "equal_split_awa_features",
    "equal_split_cifar100",
    "f1_cifar100_1k",
    "frozen_cub",
    "permuted_digits",
    "permuted_mnist",
    "split_awa_features",
    "split_cifar100",
    "split_cub",
]


def test_these_are_the_benchmarks_that_were_run():
    stored = {path.parent.name for path in RESULTS.glob("*/results.jsonl")}
    with_er = {name for name in stored if any(r.experiment.row == "er" for r in ResultStore(RESULTS / name).results())}
    assert with_er == set(BENCHMARKS)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_each_benchmark_that_was_run_has_its_table(benchmark):
    assert f"<!-- results/{benchmark} -->" in PAGES["docs/measured.md"].read_text()


def test_the_stored_records_make_a_map_of_the_drift():
    figure = make_figure(paper_figures()["figure-tsne"], spans.stored(), "cpu")
    (table,) = figure.tables
    assert [one.row for one in with_maps(figure).maps] == [row.name for row in table.rows]


def test_the_stored_results_are_a_small_part_of_a_clone():
    assert sum(path.stat().st_size for path in RESULTS.rglob("*")) < 6_000_000, "see results/README.md, 'Size'"


def test_the_stored_records_have_their_features_rounded():
    records = [read_record(path) for path in RESULTS.rglob(RECORD_PACKED)]
    assert records
    for record in records:
        steps = record.features[1:].double() * 256
        assert torch.equal(steps, steps.round()), "python results/migrate.py results --pack"


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Copies of two stored runs, whose accuracies are known here."""
    results = {}
    runs = [each for each in ResultStore(RESULTS / "permuted_digits").results() if each.experiment.row == "er"]
    for result in sorted(runs, key=lambda each: each.experiment.seed)[:2]:
        ResultStore(tmp_path / "permuted_digits").save(result)
        results[result.experiment.seed] = 100 * np.array(result.accuracies, dtype=float)
    (tmp_path / "times.txt").write_text("ratio 1.250 of two\nother 7\n")
    (tmp_path / "memory.md").write_text("| row | in all |\n| --- | ---: |\n| er | 3.25 |\n| drr | 4.50 |\n")
    monkeypatch.setattr(spans, "RESULTS", tmp_path)
    spans._stored.cache_clear()
    yield results
    spans._stored.cache_clear()


def test_a_span_has_the_mean_and_the_deviation_over_seeds(stored):
    last = [matrix[-1].mean() for matrix in stored.values()]
    assert spans.value_of("permuted_digits/er A_T") == mean_and_spread(last, 1, 2)
    assert spans.value_of("permuted_digits/er A_T .1") == mean_and_spread(last, 1, 1)
    assert spans.value_of("permuted_digits/er seeds") == "2"


def test_a_span_chooses_runs_by_seed_and_by_setting(stored):
    first, second = stored
    assert spans.value_of(f"permuted_digits/er seed={second} A_T") == f"{stored[second][-1].mean():.2f}"
    assert spans.value_of(f"permuted_digits/er seed={first}-{second} seeds") == "2"
    assert spans.value_of("permuted_digits/er selection=ring rows") == "`er`"
    with pytest.raises(ValueError, match="no stored run of 'er' in 'permuted_digits' has selection=centroid"):
        spans.value_of("permuted_digits/er selection=centroid A_T")


def test_a_span_has_accuracies_on_the_way_differences_and_extremes(stored):
    (one, first), (two, second) = stored.items()
    way = np.mean([first[t, : t + 1].mean() for t in (1, 2)])
    assert spans.value_of(f"permuted_digits/er seed={one} A_2..A_3") == f"{way:.1f}"
    ends = [first[-1].mean(), second[-1].mean()]
    pair = f"permuted_digits/er seed={one} A_T - permuted_digits/er seed={two} A_T .3"
    assert spans.value_of(pair) == f"{ends[0] - ends[1]:.3f}"
    assert spans.value_of("min permuted_digits/er A_T") == f"{min(ends):.2f}"
    assert spans.value_of("max permuted_digits/er A_T") == f"{max(ends):.2f}"


@pytest.mark.usefixtures("stored")
def test_a_span_reads_files_of_measurements_and_the_papers_tables():
    assert spans.value_of("times.txt /ratio ([0-9.]+) of/") == "1.250"
    assert spans.value_of("memory.md drr 'in all' .1") == "4.5"
    printed = next(cells for _, name, *cells in paper_tables()["table-2"].rows if name == "drr")
    assert [spans.value_of(f"paper/table-2/drr {column}") for column in ("A_T", "F_T", "LTR")] == printed


@pytest.mark.usefixtures("stored")
def test_filling_a_page_replaces_what_was_typed():
    page = "It took <!--= times.txt /other ([0-9]+)/ -->9<!--/--> rounds."
    assert spans.filled(page) == "It took <!--= times.txt /other ([0-9]+)/ -->7<!--/--> rounds."


def test_typed_numbers_are_found_and_others_are_not():
    page = "a 1.5 b <!--= x -->2.5<!--/--> `3.5` c\n\n    4.5\n\n```\n5.5\n```\n| 6.5 |\n"
    assert re.findall(r"\d\.\d", _typed(page)) == ["1.5", "6.5"]


def _typed(page: str) -> str:
    """Return a page on one line, without generated parts, code, links and comments."""
    generated = rf"```.*?```|{TABLES}|{spans.SPAN.pattern}|<!--.*?-->"
    page = re.sub(rf"{generated}|^ {{4}}.*?$|\]\([^)]*\)", "", page, flags=re.DOTALL | re.MULTILINE)
    return " ".join(re.sub(r"`[^`]*`", "`", page).split())
