# ruff: noqa: F401, F811  the fixture is imported, and named again by each test that takes it
"""`holdfast paper` as a user calls it, and the page of results that it writes."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from holdfast.report.page import results_page
from holdfast.report.paper import make_table, paper_tables, stored_runs
from tests.report.made_up import store
from tests.test_cli import holdfast

# The command prints its warnings, which is tested here.
pytestmark = pytest.mark.filterwarnings("always::UserWarning")

ROOT = Path(__file__).parents[1]
COMMAND = "holdfast paper all --from results --format markdown --to docs/results.md"


def test_the_page_of_results_is_that_of_the_stored_results(monkeypatch):
    monkeypatch.chdir(ROOT)
    runs = stored_runs([Path("results")])
    tables = [make_table(paper, runs, "cpu") for paper in paper_tables().values()]
    page = results_page(tables, command=COMMAND, base=Path("docs"))
    assert (ROOT / "docs" / "results.md").read_text() == page, f"write it again: {COMMAND}"


def test_alone_it_lists_the_tables(holdfast):
    done = holdfast("paper")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(paper_tables())


@pytest.mark.parametrize("style", ["terminal", "markdown", "latex", "html", "csv"])
def test_a_table_comes_from_stored_results_in_every_format(style, tmp_path, holdfast):
    store(tmp_path / "kept", "permuted_mnist", "er", {1234: 0.8, 1235: 0.7})
    done = holdfast("paper", "table-1", "--from", "kept", "--format", style)
    assert (done.returncode, done.stderr) == (0, "")
    assert "82.5" in done.stdout
    assert "94.43" in done.stdout


def test_nothing_stored_is_dashes_and_no_error(holdfast):
    done = holdfast("paper", "all", "--from", "nowhere")
    assert done.returncode == 0
    assert done.stderr.strip() == "warning: no folder of results at nowhere"
    assert "table-8" in done.stdout
    assert "–" in done.stdout


def test_a_broken_file_is_named_and_the_rest_is_shown(tmp_path, holdfast):
    store(tmp_path / "runs", "permuted_mnist", "er", {1234: 0.8})
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "result.json").write_text("{")
    done = holdfast("paper", "table-1")
    assert done.returncode == 0
    assert "runs/broken/result.json is no result of a run" in done.stderr
    assert "85.00" in done.stdout


def test_verdicts_say_why_not(tmp_path, holdfast):
    store(tmp_path / "runs", "split_cifar100", "er", {1234: 0.38}, size="cpu")
    done = holdfast("paper", "--verdicts")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(" ER") and "A_T" in line)
    assert "not comparable" in line
    assert "replay_size=32 instead of 256; 1 of 5 seeds; the number is within the spreads" in line


def test_all_in_markdown_is_the_page_and_its_links_lead_to_the_runs(tmp_path, holdfast):
    store(tmp_path / "runs", "permuted_mnist", "er", {1234: 0.8})
    done = holdfast("paper", "all", "--format", "markdown", "--to", "docs/deep/page.md")
    assert done.stdout.strip() == "written to docs/deep/page.md"
    page = (tmp_path / "docs" / "deep" / "page.md").read_text()
    assert "`holdfast paper all --format markdown --to docs/deep/page.md`" in page
    link = page.split("[85.00](", 1)[1].split(")")[0]
    assert (tmp_path / "docs" / "deep" / link).resolve().is_file()


RECIPE = """
stream = "permuted_digits"
setting = "domain"
memory = 100
seeds = [1, 2, 3]
[cpu]
seeds = [1, 2]
[rows.ring]
method = "er"
stream = {{ name = "permuted_digits", n_tasks = 2, samples_per_task = 100 }}
[rows.epsilon_6_0]
method = "er"
lr = {lr}
stream = {{ name = "permuted_digits", n_tasks = 2, samples_per_task = 100 }}
"""


@pytest.fixture
def small_recipe(tmp_path, monkeypatch):
    """Table 6 is made from a recipe of two small rows."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    monkeypatch.setattr("holdfast.experiments.recipes._folder", lambda: folder)

    def write(lr: float) -> None:
        (folder / "ablation_threshold.toml").write_text(RECIPE.format(lr=lr))

    return write


def test_run_runs_what_is_missing_and_only_that(small_recipe, holdfast):
    small_recipe(lr=0.1)
    first = holdfast("paper", "table-6", "--run")
    assert first.returncode == 0, first.stderr
    assert "has no row 'epsilon_6_5'" in first.stderr
    assert first.stdout.count("ablation_threshold ring seed") == 2
    second = holdfast("paper", "table-6", "--run", "--format", "csv", "--out", "other", "--from", "runs")
    rows = {line["row"]: line for line in csv.DictReader(io.StringIO(second.stdout))}
    assert rows["ring"]["seeds"] == rows["epsilon_6_0"]["seeds"] == "1 2"
    assert rows["epsilon_6_5"]["mean"] == ""


def test_a_run_that_fails_is_named_and_the_others_go_on(small_recipe, holdfast):
    small_recipe(lr=1e30)
    done = holdfast("paper", "table-6", "--run", "--format", "csv", "--to", "table.csv")
    assert done.returncode == 1
    assert "ablation_threshold epsilon_6_0 seed 1 was not run to its end: the loss is" in done.stderr
    rows = {line["row"]: line for line in csv.DictReader(Path("table.csv").read_text().splitlines())}
    assert (rows["ring"]["seeds"], rows["epsilon_6_0"]["seeds"]) == ("1 2", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table-9"], "no 'table-9' in the paper's tables"),
        (["table-1", "--size", "gpu"], "no 'gpu' in the sizes of a table"),
        (["table-1", "--format", "latx"], "did you mean 'latex'"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, message, holdfast):
    done = holdfast("paper", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
