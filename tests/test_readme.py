"""The README's example runs as it stands."""

import re
from pathlib import Path

import numpy as np
import pytest

from holdfast.build import names, options_of
from holdfast.experiments.results import ResultStore, read_result
from holdfast.experiments.tables import comparison, markdown
from holdfast.report.figures import make_figure, paper_figures, with_maps
from holdfast.report.paper import stored_runs

ROOT = Path(__file__).parents[1]
README, METHODS, RESULTS = ROOT / "README.md", ROOT / "docs" / "methods.md", ROOT / "results"


def test_the_readmes_example_runs_and_has_learned_its_stream(tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(example.strip().splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    exec(compile("import torch; torch.manual_seed(0)\n" + example, "README.md", "exec"), scope)
    learner, x, y = scope["learner"], scope["x"], scope["y"]
    assert (learner.predict(x) == y).float().mean() >= 0.9
    assert str(learner.predict(x)) in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["methods", "selections", "retrievals", "streams", "backbones"])
def test_the_readmes_table_names_all_there_is(kind):
    (row,) = re.findall(rf"^\| {kind} \|(.*)\|$", README.read_text(), flags=re.MULTILINE)
    for name in names(kind):
        assert f"`{name}`" in row


@pytest.mark.parametrize("benchmark", sorted(path.name for path in RESULTS.iterdir() if (path / "er").exists()))
def test_the_readmes_tables_are_those_of_the_stored_results(benchmark):
    results = ResultStore(RESULTS / benchmark).results()
    assert markdown(comparison(results)) in README.read_text()


@pytest.mark.parametrize(
    ("page", "folder"),
    [
        ("drr", "tuning/split_cifar100"),
        ("drr", "tuning/turned"),
        ("drr", "tuning/permuted_mnist"),
        ("drr", "tuning/split_cub"),
        ("drr", "tuning/turned_12"),
        ("drr", "tuning/turned_plus"),
        ("drr", "tuning/turned_class"),
        ("drr", "tuning/free"),
        ("drr", "tuning/unscaled"),
        ("drr", "settings/split_digits"),
        ("drr", "settings/split_cifar100"),
        ("methods", "five_tasks/permuted_mnist"),
        ("methods", "five_tasks/split_cifar100"),
    ],
)
def test_the_tables_in_the_docs_are_those_stored(page, folder):
    results = ResultStore(RESULTS / folder).results()
    assert markdown(comparison(results)) in (ROOT / "docs" / f"{page}.md").read_text()


def test_the_readmes_numbers_without_tasks_are_those_stored():
    found = {
        (each.experiment.row, each.experiment.setting): f"{100 * each.metrics['average_accuracy']:.1f}"
        for each in ResultStore(RESULTS / "settings" / "split_cifar100").results()
        if each.experiment.retrieval.name == "uniform"
        and (each.experiment.row != "er_ace" or "average" in each.experiment.method.options)
    }
    readme = " ".join(README.read_text().split())
    assert f"`drr` has {found['drr', 'class']} % class-incremental and {found['drr', 'free']} task-free" in readme
    assert f"`er` {found['er', 'class']} and {found['er', 'free']};" in readme
    assert f"averaged `er_ace` {found['er_ace', 'class']} class-incremental" in readme


def test_the_readmes_drift_is_that_of_the_stored_runs_which_make_a_map_of_it():
    figure = make_figure(paper_figures()["figure-tsne"], stored_runs([RESULTS]), "cpu")
    (table,) = figure.tables
    told = ", ".join(f"{row.label.removesuffix(' (Ours)')} {row.cells[-1].mean:.2f}" for row in table.rows)
    assert f"is what the paper calls drift: {told}" in " ".join(README.read_text().split())
    assert [one.row for one in with_maps(figure).maps] == [row.name for row in table.rows]


def test_the_readmes_accuracy_in_bfloat16_is_that_stored():
    rounded, exact = (
        next(result for result in ResultStore(RESULTS / folder).results() if result.experiment.seed == 1234)
        for folder in ("ablation_margins/t0_1_c0_01_cdl", "split_cifar100/drr/1234-80c6d70cae")
    )
    assert rounded.experiment.backbone.options == {"precision": "bfloat16"}
    defaults = options_of("methods", "drr")  # which one of them states
    assert defaults | rounded.experiment.method.options == defaults | exact.experiment.method.options
    told = [f"{100 * result.metrics['average_accuracy']:.2f}" for result in (rounded, exact)]
    assert f"`drr` has {told[0]} % in it where it has {told[1]} in float32" in " ".join(README.read_text().split())


def test_the_readmes_accuracies_with_adamw_are_those_stored():
    found = {
        result.experiment.row: f"{100 * result.metrics['average_accuracy']:.2f}"
        for result in ResultStore(RESULTS / "split_cifar100").results()
        if (result.experiment.optimizer, result.experiment.seed) == ("adamw", 1234)
        and result.experiment.backbone.options == {"precision": "bfloat16"}
    }
    told = f"{found['er_average']} % on seed 1234, where `drr_plus` has {found['drr_plus']}."
    assert told in " ".join(README.read_text().split())


def test_the_readmes_averaged_replay_with_a_reservoir_is_that_stored():
    found: dict[str, list[float]] = {}
    for result in ResultStore(RESULTS / "split_cifar100").results():
        if result.experiment.method.options.get("average") == 0.99:
            found.setdefault(result.experiment.row, []).append(100 * result.metrics["average_accuracy"])
    replay, drr = (f"{np.mean(found[row]):.2f}±{np.std(found[row]):.2f}" for row in ("er_average", "drr"))
    assert len(found["er_average"]) == len(found["drr"]) == 3
    assert f"is above it, {replay} against {drr} % on the same three seeds" in " ".join(README.read_text().split())


def test_the_docs_accuracies_on_split_cifar_are_those_stored():
    found: dict[tuple[str, str], dict[int, str]] = {}
    for result in ResultStore(RESULTS / "split_cifar100").results():
        experiment, options = result.experiment, result.experiment.method.options
        if (experiment.optimizer, options.get("replay_size")) == (
            "sgd",
            32,
        ) and experiment.selection.name != "reservoir":
            kind = experiment.row, options.get("old_against", "seen")
            found.setdefault(kind, {})[experiment.seed] = f"{100 * result.metrics['average_accuracy']:.1f}"
    text = " ".join((ROOT / "docs" / "drr.md").read_text().split())
    seeds = (1234, 1235, 1236)
    now, before, averaged = (
        [found[kind][seed] for seed in seeds] for kind in (("drr", "task"), ("drr", "seen"), ("er_average", "seen"))
    )
    assert f"On seeds 1234 to 1236 `drr` has {now[0]}, {now[1]} and {now[2]} %" in text
    assert f"averaged replay has {averaged[0]}, {averaged[1]} and {averaged[2]}" in text
    assert f"it was {before[0]}, {before[1]} and {before[2]}" in text


def test_the_readmes_ratios_are_those_stored():
    readme = " ".join(README.read_text().split())
    (ratio,) = re.findall(r"ratio +(\d+\.\d+)", (RESULTS / "step.txt").read_text())
    assert f"took {ratio} times as long" in readme
    for name in ("step_resnet", "step_256"):
        (ratio,) = re.findall(r"drr +(\d+\.\d+) times er", (RESULTS / f"{name}.txt").read_text())
        assert f"{ratio} times" in readme
    (share,) = re.findall(r"times er, (\d+\.\d+)% of it", (RESULTS / "step_256.txt").read_text())
    assert f"choosing what to remember is {share} % of it" in readme
    (ratio,) = re.findall(r"ratio +(\d+\.\d+) bfloat16", (RESULTS / "precision.txt").read_text())
    assert f"took {ratio} times that in float32" in readme


@pytest.mark.parametrize(("benchmark", "place"), [("permuted_mnist", 0), ("split_cifar100", 1)])
def test_the_costs_in_the_docs_are_those_stored(benchmark, place):
    stored = (RESULTS / f"cost_{benchmark}.md").read_text()
    lines = [line.split("|") for line in METHODS.read_text().splitlines() if line.startswith("| `")]
    for row, cost in re.findall(r"^\| (\w+) \| ([\d.]+) \|$", stored, flags=re.MULTILINE):
        if row in names("methods"):
            told = next(cells[5] for cells in lines if cells[1].strip().startswith(f"`{row}`"))
            assert told.split(";")[0].split("/")[place].strip() == cost


def test_the_costs_of_selections_in_the_docs_are_those_stored():
    costs = re.findall(r"^\| (\w+) \| ([\d.]+) \|$", (RESULTS / "cost_sampling.md").read_text(), flags=re.MULTILINE)
    assert costs
    for selection, cost in costs:
        assert re.search(rf"^\| `{selection}` \|.*\| {cost} \|$", METHODS.read_text(), flags=re.MULTILINE)


def test_the_memory_in_the_docs_is_what_is_stored():
    _, table = (RESULTS / "memory_split_cifar100.md").read_text().split("\n\n")
    assert table.strip() in METHODS.read_text()


def test_the_features_that_drr_ends_with_are_told_as_stored():
    results = [read_result(path) for path in sorted((RESULTS / "permuted_mnist" / "drr").glob("*/result.json"))]
    megabytes = [result.footprint.features / 1e6 for result in results]
    assert f"DRR keeps {min(megabytes):.1f} to {max(megabytes):.1f} MB of features" in METHODS.read_text()


def test_how_often_stored_scores_are_right_is_told_as_stored():
    (share,) = re.findall(r"^([\d.]+)% of", (RESULTS / "der_stored_scores.txt").read_text())
    assert f"for {float(share):.0f} % of what is stored" in " ".join(METHODS.read_text().split())
