"""`holdfast paper` as a user calls it, and the page of results that it writes."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from holdfast.experiments.probes.record import RECORD
from holdfast.experiments.run import run
from holdfast.experiments.sweep import Failure, SweepReport
from holdfast.report.figures import paper_figures
from holdfast.report.page import results_page
from holdfast.report.paper import all_tables, make_table, paper_tables, stored_runs
from tests.support.made_up_results import put_record, store, store_in_turn

# The command prints its warnings, which is tested here.
pytestmark = pytest.mark.filterwarnings("always::UserWarning")

ROOT = Path(__file__).parents[2]
COMMAND = "holdfast paper all --from results --format markdown --to docs/results.md"


def test_the_page_of_results_is_that_of_the_stored_results(monkeypatch):
    monkeypatch.chdir(ROOT)
    runs = stored_runs([Path("results")])
    tables = [make_table(paper, runs, "cpu") for paper in paper_tables().values()]
    page = results_page(tables, command=COMMAND, base=Path("docs"))
    assert (ROOT / "docs" / "results.md").read_text() == page, f"write it again: {COMMAND}"


def test_alone_it_lists_each_papers_tables_then_its_figures(holdfast):
    done = holdfast("paper")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    others = [table for table in all_tables() if table not in paper_tables()]
    assert listed == [*paper_tables(), *paper_figures(), *others]
    assert lines[0] == "Overcoming Domain Drift in Online Continual Learning (arXiv 2405.09133)"


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
    told = "replay_size=32 instead of 256; backbone.precision=bfloat16 instead of float32; 1 of 5 seeds"
    assert f"{told}; the number is within the spreads" in line


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


def test_with_workers_what_is_missing_is_swept_and_what_fails_there_is_named(small_recipe, holdfast, monkeypatch):
    small_recipe(lr=0.05)  # alike in all but the name, one would count for the other
    swept = []

    def run_at_once(experiments, store, *, workers, **options):
        swept.append((workers, [experiment.label for experiment in experiments], options["record"]))
        done, *others = experiments
        return SweepReport([run(done, store)], [Failure(other, "no reason") for other in others], 0)

    monkeypatch.setattr("holdfast.cli.sweeping.run_at_once", run_at_once)
    done = holdfast("paper", "table-6", "--run", "--workers", "2", "--format", "csv")
    rows = [f"ablation_threshold {row} seed {seed}" for seed in (1, 2) for row in ("ring", "epsilon_6_0")]
    assert swept == [(2, rows, False)]
    assert done.returncode == 1
    assert f"{rows[1]} was not run to its end: no reason" in done.stderr
    found = {line["row"]: line["seeds"] for line in csv.DictReader(io.StringIO(done.stdout))}
    assert (found["ring"], found["epsilon_6_0"]) == ("1", "")


def test_a_run_that_fails_is_named_and_the_others_go_on(small_recipe, holdfast):
    small_recipe(lr=1e30)
    done = holdfast("paper", "table-6", "--run", "--format", "csv", "--to", "table.csv")
    assert done.returncode == 1
    assert "ablation_threshold epsilon_6_0 seed 1 was not run to its end: the loss is" in done.stderr
    rows = {line["row"]: line for line in csv.DictReader(Path("table.csv").read_text().splitlines())}
    assert (rows["ring"]["seeds"], rows["epsilon_6_0"]["seeds"]) == ("1 2", "")


@pytest.mark.parametrize("style", ["terminal", "markdown", "latex", "html", "csv"])
def test_the_numbers_behind_a_figure_come_in_every_format_of_a_table(style, tmp_path, holdfast):
    for row in ("er", "drr"):
        results = store_in_turn(tmp_path / "runs", "permuted_mnist", row, [1234], size="cpu")
    learned = 100 * np.mean(np.diagonal(results[0].matrix))
    trend = [100 * np.mean(results[0].accuracies[t][: t + 1]) for t in range(17)]
    for name, expected in (("figure-lca", [learned]), ("figure-acc", trend), ("figure-tsne", [results[0].moved[8][0]])):
        done = holdfast("paper", name, "--format", style)
        assert (done.returncode, done.stderr) == (0, "")
        assert "DRR (Ours)" in done.stdout
        if style == "csv":
            found = [float(line["mean"]) for line in csv.DictReader(io.StringIO(done.stdout)) if line["mean"]]
            assert all(min(abs(number - each) for each in found) < 1e-9 for number in expected)
        else:
            digits = 1 if name == "figure-acc" else 2
            assert all(f"{number:.{digits}f}" in done.stdout for number in expected)
            assert "permuted_mnist in size cpu" in done.stdout.replace("\\_", "_")


def test_a_figure_is_drawn_and_the_same_every_time(tmp_path, holdfast):
    pytest.importorskip("openTSNE", reason="openTSNE is not installed")
    for row in ("er", "drr"):
        (result,) = store_in_turn(tmp_path / "runs", "permuted_mnist", row, [1234])
    put_record(tmp_path / "runs", result)
    for name in paper_figures():
        done = holdfast("paper", name, "--format", "svg")
        assert (done.returncode, done.stderr) == (0, "")
        root = ElementTree.fromstring(done.stdout)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "DRR (Ours)" in "".join(root.itertext())
        written = holdfast("paper", name, "--format", "svg", "--to", "deep/figure.svg")
        assert written.stdout.strip() == "written to deep/figure.svg"
        assert Path("deep/figure.svg").read_text() == done.stdout


def test_a_broken_record_is_named_and_the_rest_is_drawn(tmp_path, holdfast):
    pytest.importorskip("openTSNE", reason="openTSNE is not installed")
    for row in ("agem", "drr"):
        (result,) = store_in_turn(tmp_path / "runs", "permuted_mnist", row, [1234])
        put_record(tmp_path / "runs", result)
    (broken,) = (tmp_path / "runs").glob(f"permuted_mnist/agem/*/{RECORD}")
    broken.write_bytes(broken.read_bytes()[:-9])
    done = holdfast("paper", "figure-tsne", "--format", "svg", "--to", "figure.svg")
    assert done.returncode == 0
    (line,) = done.stderr.strip().splitlines()
    assert f"agem/{broken.parent.name}/{RECORD}" in line
    assert "A-GEM: no record is stored." in Path("figure.svg").read_text()


def test_a_picture_of_nothing_is_a_sentence_and_no_file(tmp_path, holdfast):
    (tmp_path / "runs").mkdir()
    for name in paper_figures():
        done = holdfast("paper", name, "--format", "svg", "--to", "figure.svg")
        assert done.returncode == 1
        assert done.stderr.strip() == (
            f"holdfast: no run for {name} is stored, so there is nothing to draw: --run runs what is missing"
        )
        assert not Path("figure.svg").exists()
        assert "no run is stored" in holdfast("paper", name).stdout


SMALL_MNIST = """
stream = { name = "permuted_digits", n_tasks = 2, samples_per_task = 60 }
setting = "domain"
memory = 50
seeds = [1, 2]
[cpu]
seeds = [1]
[rows.er]
[rows.agem]
[rows.drr]
"""


def test_run_runs_what_a_figure_misses_and_records_for_the_maps(tmp_path, monkeypatch, holdfast):
    pytest.importorskip("openTSNE", reason="openTSNE is not installed")
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "permuted_mnist.toml").write_text(SMALL_MNIST)
    monkeypatch.setattr("holdfast.experiments.recipes._folder", lambda: folder)
    drawn = holdfast("paper", "figure-tsne", "--run", "--format", "svg")
    assert drawn.returncode == 0, drawn.stderr
    assert "the recipe 'permuted_mnist' has no row 'scr', so none is run" in drawn.stderr
    assert sorted(path.parts[-3] for path in Path("runs").rglob(RECORD)) == ["agem", "drr"]
    assert ElementTree.fromstring(drawn.stdout).tag.endswith("svg")
    assert "after task 2" in drawn.stdout

    # A run that another folder holds without a record is run again, once.
    for path in Path("runs").rglob(RECORD):
        path.unlink()
    again = holdfast("paper", "figure-tsne", "--run", "--from", "runs", "--out", "other", "--format", "svg")
    assert sorted(path.parts[-3] for path in Path("other").rglob(RECORD)) == ["agem", "drr"]
    assert again.stdout == drawn.stdout

    lines = holdfast("paper", "figure-acc", "--run", "--format", "csv").stdout
    rows = {line["row"] for line in csv.DictReader(io.StringIO(lines)) if line["mean"]}
    assert rows == {"er", "agem", "drr"}
    assert not list(Path("runs").rglob(f"er/*/{RECORD}"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table-9"], "no 'table-9' in the papers' tables"),
        (["table-1", "--size", "gpu"], "no 'gpu' in the sizes of a table"),
        (["table-1", "--format", "latx"], "did you mean 'latex'"),
        (["figure-lc"], "did you mean 'figure-lca'"),
        (["table-1", "--format", "svg"], "tables have no picture: --format svg is of figure-lca, figure-acc"),
        (["all", "--format", "svg"], "tables have no picture"),
        (["figure-acc", "--verdicts"], "the paper prints no numbers of figure-acc"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, message, holdfast):
    done = holdfast("paper", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
