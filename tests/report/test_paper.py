"""The paper's numbers are those of its LaTeX, and stored results find their places."""

import json
import re

import pytest

from holdfast.core.fingerprint import digest_of
from holdfast.experiments.differences import differences
from holdfast.experiments.equivalent import MARK, Equivalences
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import ResultStore
from holdfast.parts import Unknown
from holdfast.report.page import counted
from holdfast.report.paper import chosen_tables, make_table, missing_experiments, paper_tables, stored_runs
from holdfast.report.rendering import numbers
from holdfast.report.tables import parse_printed
from tests.support.made_up_results import store
from tests.support.places import TEX


def latex_rows(source: str, label: str) -> list[list[str]]:
    """The body of the table with a label, as plain text."""
    (block,) = (block for block in re.findall(r"\\begin{table}.*?\\end{table}", source, re.DOTALL) if label in block)
    body = block.split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
    for mark in (r"\midrule", r"\hline", r"\textbf", r"\mb", "$", " ", "\t", "\n"):
        body = body.replace(mark, "")
    body = body.replace(r"\tilde{H}", "H̃").replace(r"\checkmark", "✓").replace(r"\epsilon", "ε").replace(r"\pm", "±")
    body = re.sub(r"[{}]", "", body)
    return [line.split("&") for line in body.split(r"\\") if line]


@pytest.mark.real_data
@pytest.mark.parametrize("table", paper_tables().values(), ids=lambda table: table.id)
def test_the_numbers_are_those_of_the_papers_latex(table):
    if not TEX.exists():
        pytest.skip(f"no LaTeX of the paper at {TEX}: set HOLDFAST_PAPER")
    n_values = len(table.columns)
    found = [
        (", ".join(cell for cell in line[:-n_values] if cell), line[-n_values:])
        for line in latex_rows(TEX.read_text(), f"\\label{{{table.label}}}")
    ]
    assert [(label.replace(" ", ""), values) for label, _, *values in table.rows] == [
        (label.replace(" ", ""), values) for label, values in found
    ]


@pytest.mark.real_data
def test_the_tables_stand_in_the_papers_order_and_none_is_left_out():
    if not TEX.exists():
        pytest.skip(f"no LaTeX of the paper at {TEX}: set HOLDFAST_PAPER")
    labels = re.findall(r"\\label{(tab:[^}]*)}", TEX.read_text())
    assert [table.label for table in paper_tables().values()] == labels
    assert list(paper_tables()) == [f"table-{i + 1}" for i in range(len(labels))]


@pytest.mark.parametrize("table", paper_tables().values(), ids=lambda table: table.id)
def test_every_row_has_a_value_a_column_and_a_name_of_its_own(table):
    assert all(len(row) == len(table.columns) + 2 for row in table.rows)
    names = [name for _, name, *_ in table.rows]
    assert len(set(names)) == len(names)
    assert set(table.bounds) <= set(names)
    for recipe in table.recipes:
        load_recipe(recipe)


@pytest.mark.parametrize("name", ["table-5", "table-6", "table-7"])
def test_the_ablations_rows_come_first_in_their_recipes(name):
    (table,) = chosen_tables(name)
    assert [row for _, row, *_ in table.rows] == list(load_recipe(table.recipe).rows)[: len(table.rows)]


def made(name, folder, size="full"):
    (paper,) = chosen_tables(name)
    return make_table(paper, stored_runs([folder]), size)


def cells(table, row):
    (found,) = (line.cells for line in table.rows if line.name == row)
    return found


def test_without_results_every_cell_is_empty_and_the_papers_numbers_stand(tmp_path):
    for paper in paper_tables().values():
        table = make_table(paper, stored_runs([tmp_path]), "cpu")
        assert not any(cell.values or cell.verdict for row in table.rows for cell in row.cells)
        assert any(cell.paper for row in table.rows for cell in row.cells)


def test_a_row_has_the_mean_over_seeds_and_a_verdict(tmp_path):
    store(tmp_path, "split_cifar100", "er", dict.fromkeys(range(1234, 1239), 0.38))
    accuracy, forgetting, ltr = cells(made("table-2", tmp_path), "er")
    assert (accuracy.mean, accuracy.std) == (pytest.approx(64.0), pytest.approx(0))
    assert accuracy.difference == pytest.approx(64 - 63.97)
    assert accuracy.verdict.short == "reproduced"
    assert (forgetting.mean, forgetting.verdict.short) == (pytest.approx(0.52), "above")
    assert [run.seed for run in ltr.runs] == list(range(1234, 1239))


def test_other_settings_and_other_sizes_are_not_comparable_and_fewer_seeds_are_told(tmp_path):
    store(tmp_path / "few", "split_cifar100", "er", {1234: 0.4})
    cell = cells(made("table-2", tmp_path / "few"), "er")[0]
    assert (cell.verdict.short, cell.verdict.remarks) == ("reproduced", ("1 of 5 seeds",))
    store(tmp_path / "cpu", "split_cifar100", "er", {1234: 0.4}, size="cpu")
    cell = cells(made("table-2", tmp_path / "cpu", "cpu"), "er")[0]
    in_bfloat16 = "backbone.precision=bfloat16 instead of float32"
    assert cell.verdict.remarks == ("replay_size=32 instead of 256", in_bfloat16, "1 of 5 seeds")
    assert cell.verdict.short == "not comparable"
    assert cell.departures == ()
    store(tmp_path / "other", "split_cifar100", "er", {1234: 0.4}, backbone="mlp")
    cell = cells(made("table-2", tmp_path / "other"), "er")[0]
    assert cell.departures == ("backbone=mlp instead of reduced_resnet18",)
    assert cell.verdict.remarks == (*cell.departures, "1 of 5 seeds")


def test_the_runs_nearest_the_asked_size_are_shown_and_configurations_never_mixed(tmp_path):
    store(tmp_path, "split_cifar100", "er", {1234: 0.1}, size="cpu")
    store(tmp_path, "split_cifar100", "er", {1234: 0.2, 1235: 0.3})
    store(tmp_path, "split_cifar100", "er", {1234: 0.4, 1235: 0.4, 1236: 0.4}, lr=0.5)
    assert cells(made("table-2", tmp_path, "cpu"), "er")[1].values == {1234: pytest.approx(0.8)}
    assert cells(made("table-2", tmp_path, "full"), "er")[1].values == pytest.approx({1234: 0.7, 1235: 0.6})


@pytest.mark.parametrize(
    ("size", "benchmark", "run"),
    [
        ("full", "split_cifar100", "drr"),
        ("full", "ablation_margins", "drr"),
        ("cpu", "ablation_threshold", "epsilon_4_0"),
    ],
)
def test_a_run_of_the_same_settings_counts_under_any_name(tmp_path, size, benchmark, run):
    store(tmp_path, benchmark, run, {1234: 0.1}, size=size)
    runs = stored_runs([tmp_path])
    for name, row in (("table-5", "drr"), ("table-6", "epsilon_4_0")):
        assert cells(made(name, tmp_path, size), row)[1].values == {1234: pytest.approx(0.8)}
        missing = missing_experiments(paper_tables()[name], runs, size)
        assert (row, 1234) not in {(experiment.row, experiment.seed) for experiment in missing}
        rows = load_recipe(paper_tables()[name].recipe).rows
        assert len(missing) == len(rows) * (5 if size == "full" else 1) - 1


def test_an_option_stated_as_its_default_departs_from_nothing(tmp_path):
    store(tmp_path, "split_cifar100", "er", {1234: 0.1}, method__steps_per_batch=1, memory=1105)
    assert cells(made("table-2", tmp_path), "er")[0].departures == ()


def test_tasks_held_out_for_tuning_and_seeds_of_others_are_no_part_of_a_table(tmp_path):
    store(tmp_path, "split_cifar100", "er", {1234: 0.1}, stream__tasks="tuning")
    store(tmp_path, "split_cifar100", "er", {1234: 0.1}, stream__n_tasks=2)
    store(tmp_path, "split_cifar100", "er", {7: 0.1})
    assert cells(made("table-2", tmp_path), "er")[0].values == {}


def test_runs_of_the_recipe_that_stands_for_another_fill_its_table_on_a_cpu_only(tmp_path):
    store(tmp_path, "split_awa_features", "er", {1234: 0.1})
    store(tmp_path, "split_awa_features", "er_average", {1234: 0.2})
    store(tmp_path, "split_awa_features", "agem", {1234: 0.3}, lr=0.7)
    table = made("table-4", tmp_path, "cpu")
    assert cells(table, "er")[1].values == {1234: pytest.approx(0.8)}
    assert cells(table, "er_average")[1].values == {1234: pytest.approx(0.7)}
    assert cells(table, "agem")[1].departures == ("lr=0.7 instead of 0.1",)
    assert "stream.source=features instead of images" in table.notes[0]
    assert "stream.source=features instead of images" in cells(table, "er")[0].verdict.reasons
    assert not any(cell.values for row in made("table-4", tmp_path, "full").rows for cell in row.cells)
    missing = missing_experiments(paper_tables()["table-4"], stored_runs([tmp_path]), "cpu")
    assert {experiment.benchmark for experiment in missing} == {"split_awa_features"}
    assert ("er", 1234) not in {(experiment.row, experiment.seed) for experiment in missing}


def test_the_stream_of_either_size_is_part_of_a_table_and_of_no_other_pictures(tmp_path):
    store(tmp_path, "split_cub", "er", {1234: 0.1}, size="cpu")
    store(tmp_path, "split_cub", "agem", {1234: 0.1}, size="cpu", stream__size=7)
    table = made("table-3", tmp_path, "cpu")
    assert (cells(table, "er")[0].departures, cells(table, "agem")[0].values) == ((), {})
    assert any("size=84" in reason for reason in cells(table, "er")[0].verdict.reasons)


def test_a_recipe_that_is_not_the_papers_setup_says_so_of_every_cell(tmp_path):
    store(tmp_path, "split_cub", "er", dict.fromkeys(range(1234, 1239), 0.38))
    table = made("table-3", tmp_path)
    (reason,) = cells(table, "er")[0].verdict.reasons
    assert "EfficientNet-Lite0" in reason
    assert any("ImageNet" in note for note in table.notes)


def test_times_are_of_a_batch_and_never_held_against_another_machines(tmp_path):
    store(tmp_path, "permuted_mnist", "drr", dict.fromkeys(range(1234, 1239), 0.38))
    mnist, cifar, _, _, memory, megabytes, *_ = cells(made("table-8", tmp_path), "drr")
    assert mnist.mean == pytest.approx(25)  # 0.1 s in 4 steps
    assert mnist.verdict.reasons == ("timed on another machine than the paper's RTX 3090 Ti",)
    assert (cifar.values, memory.paper_text) == ({}, "2P+(B+M)H+(M+C)H̃")
    assert (megabytes.mean, megabytes.verdict) == (pytest.approx(1.5), None)


def test_our_rows_that_the_paper_has_not_follow_below(tmp_path):
    store(tmp_path, "permuted_mnist", "er_average", {1234: 0.5})
    table = made("table-1", tmp_path)
    names = [row.name for row in table.rows]
    assert names.index("er_average") > max(names.index(name) for _, name, *_ in paper_tables()["table-1"].rows)
    assert cells(table, "er_average")[0].values
    assert cells(table, "er_average")[0].verdict is None


@pytest.mark.parametrize("name", ["table-1", "table-2", "table-3", "table-4", "table-8"])
def test_drr_with_the_papers_values_stands_above_drr_as_it_was_tuned_here(name, tmp_path):
    (paper,) = chosen_tables(name)
    recipe = paper.recipe or "split_cub"
    store(tmp_path, recipe, "drr", {1234: 0.5})
    store(tmp_path, recipe, "drr_literal", {1234: 0.4})
    table = made(name, tmp_path)
    labels = [row.label for row in table.rows]
    place = labels.index("DRR, the paper's values")
    assert labels[place + 1] == "DRR, as tuned here"
    literal, tuned = table.rows[place], table.rows[place + 1]
    assert [cell.paper for cell in literal.cells] == [cell.paper for cell in tuned.cells]
    reasons = [[cell.verdict.reasons for cell in row.cells if cell.verdict] for row in (literal, tuned)]
    values = "values of our own"
    assert (values in str(reasons[0]), values in str(reasons[1])) == (False, name != "table-8")
    n_printed = sum(parse_printed(text) is not None for _, _, *printed in paper.rows for text in printed)
    n = counted([table])
    assert n["all"] == n_printed == sum(n[word] for word in n if word != "all")


@pytest.mark.parametrize("name", ["table-1", "table-2", "table-3"])
def test_what_is_our_own_in_drr_is_all_named(name):
    (paper,) = chosen_tables(name)
    recipe = load_recipe(paper.recipe)
    unlike = differences(recipe.experiment("drr"), recipe.experiment("drr_literal"))
    assert unlike
    for setting, (value, _) in unlike.items():
        assert setting.rpartition(".")[2] in paper.departures["drr"]
        if value.replace(".", "").isdigit():
            assert f"{setting.rpartition('.')[2]}={value}" in paper.departures["drr"]


def test_departures_of_a_row_are_reasons_of_its_verdicts_and_stand_below_the_table(tmp_path):
    for row in ("soft_gem", "mega2", "der"):
        store(tmp_path, "split_cifar100", row, dict.fromkeys(range(1234, 1239), 0.38))
    table = made("table-2", tmp_path)
    assert cells(table, "mega2")[0].verdict.reasons == ()
    for row, word in (("soft_gem", "not verified"), ("der", "logit_weight=5")):
        (reason,) = cells(table, row)[0].verdict.reasons
        assert word in reason
        assert cells(table, row)[0].verdict.short == "not comparable"
        label = next(line.label for line in table.rows if line.name == row)
        assert f"{label} departs: {reason}" in table.below


@pytest.mark.parametrize("table", paper_tables().values(), ids=lambda table: table.id)
def test_departures_are_of_rows_that_are_there(table):
    rows = {name for name in table.recipes for name in load_recipe(name).rows}
    assert {*table.departures, *table.literal, *table.literal.values()} <= rows


def test_the_tuning_runs_of_a_method_are_counted_beside_its_rows(tmp_path):
    store(tmp_path, "split_cifar100", "er", {1234: 0.5})
    assert {row.n_tuning for row in made("table-2", tmp_path).rows} == {None}
    tuned = {"er": {1: 0.5, 2: 0.5}, "er_average": {1: 0.5}, "drr": {1: 0.5}, "drr_literal": {1: 0.4, 2: 0.3}}
    for row, lasts in tuned.items():
        store(tmp_path, "split_cifar100", row, lasts, stream__tasks="tuning")
    store(tmp_path, "split_cifar100", "joint", {1: 0.5}, stream__tasks="tuning")
    store(tmp_path, "split_cub", "er", {1: 0.5}, stream__tasks="tuning")
    table = made("table-2", tmp_path)
    found = {row.name: row.n_tuning for row in table.rows}
    expected = {"er": 3, "aser": 3, "er_average": 3, "agem": 0, "drr": 3, "drr_literal": 2, "finetune": 1, "joint": 1}
    assert {name: found[name] for name in expected} == expected
    header, lines = (grid := numbers(table)).header, grid.lines
    assert header[-2:] == ["seeds", "tuning runs"]
    assert {line[-1][0].text for line in lines if line[0][0].text == "A-GEM"} == {"none"}
    assert any(line.startswith("Tuning runs are") for line in table.below)


def test_below_a_table_stands_what_differs_between_the_rows_that_were_run(tmp_path):
    store(tmp_path, "split_cifar100", "er", {1234: 0.5}, size="cpu")
    store(tmp_path, "split_cifar100", "mer", {1234: 0.5}, size="cpu")
    below = made("table-2", tmp_path, "cpu").below
    (er,) = (line for line in below if line.startswith("ER: "))
    (mer,) = (line for line in below if line.startswith("MER: "))
    assert "replay_size=32" in er
    assert "selection=ring(per_class=13)" in er
    assert "replay_size=10" in mer
    assert "stream=split_cifar100(samples_per_task=500)" in mer


def test_the_differences_of_a_size_are_told(tmp_path):
    size, departure = made("table-6", tmp_path, "cpu").notes
    assert "replay_size=32 instead of 256;" in size
    assert departure.startswith("Not the paper's setup: values of `drr` that are our own")
    assert made("table-6", tmp_path, "full").notes == (departure,)
    size, note = made("table-1", tmp_path, "cpu").notes
    assert size == "permuted_mnist in size cpu: stream.samples_per_task=1000 instead of none (mer)."
    assert "weights begin as torch has them" in note


@pytest.mark.parametrize(
    ("seeds_by_row", "told"),
    [
        ({"er": [1234], "agem": [1234, 1235], "gem": [1234]}, "Rows have 1 to 2 seeds"),
        ({"er": [1234], "agem": [1235]}, "Rows have 1 seed,"),
        ({"er": range(1234, 1239), "agem": range(1234, 1237)}, "Rows have 3 to 5 seeds"),
        ({"er": range(1234, 1239)}, None),
        ({}, None),
    ],
)
def test_how_many_seeds_rows_have_is_told_as_it_is(tmp_path, seeds_by_row, told):
    for row, seeds in seeds_by_row.items():
        store(tmp_path, "split_cifar100", row, dict.fromkeys(seeds, 0.5), size="cpu")
    notes = [note for note in made("table-2", tmp_path, "cpu").notes if "seed" in note]
    assert [note.startswith(told) and note.endswith("in full they have 5: 1234-1238.") for note in notes] == [
        True
    ] * bool(told)


def test_joint_training_has_an_accuracy_only(tmp_path):
    store(tmp_path, "permuted_mnist", "joint", {1234: 0.5})
    path = next(tmp_path.rglob("result.json"))
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "accuracies": [[0.9, 0.8]]}))
    accuracy, forgetting, _ = cells(made("table-1", tmp_path), "joint")
    assert accuracy.mean == pytest.approx(85)
    assert forgetting.values == {}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: {"foreign": True},
        lambda content: {**content, "accuracies": []},
        lambda content: {**content, "accuracies": [[0.5], [0.5, 7.0]]},
        lambda content: {**content, "accuracies": [[2.0, None], [0.1, 0.2]]},
    ],
)
def test_a_file_that_makes_no_sense_is_named_and_passed_over(spoil, tmp_path):
    store(tmp_path, "permuted_mnist", "er", {1234: 0.5, 1235: 0.5})
    path = min(tmp_path.rglob("result.json"))
    path.write_text(json.dumps(spoil(json.loads(path.read_text()))))
    with pytest.warns(UserWarning, match=re.escape(str(path))):
        runs = stored_runs([tmp_path])
    assert [run.seed for run in runs] == [1235]


def test_a_folder_in_the_place_of_a_file_is_named_and_passed_over(tmp_path):
    (tmp_path / "a" / "result.json").mkdir(parents=True)
    with pytest.warns(UserWarning, match=r"a/result\.json"):
        assert stored_runs([tmp_path]) == []


def test_an_experiment_that_two_folders_hold_counts_once(tmp_path):
    for folder in ("a", "b"):
        store(tmp_path / folder, "permuted_mnist", "er", {1234: 0.5})
    (run,) = stored_runs([tmp_path / "a", tmp_path / "b"])
    assert run.path.is_relative_to(tmp_path / "a")


def test_what_is_missing_is_all_but_what_is_there(tmp_path):
    (paper,) = chosen_tables("table-6")
    store(tmp_path, "ablation_threshold", "ring", {1234: 0.5}, size="cpu")
    missing = missing_experiments(paper, stored_runs([tmp_path]), "cpu")
    rows = list(load_recipe(paper.recipe).rows)
    assert ["ring", *(experiment.row for experiment in missing)] == rows
    assert {experiment.seed for experiment in missing} == {1234}
    assert all(experiment.method.options["replay_size"] == 32 for experiment in missing)
    assert len(missing_experiments(paper, [], "full")) == len(rows) * 5


def test_a_row_that_the_recipe_has_not_is_named_and_not_run():
    (paper,) = chosen_tables("table-6")
    wider = paper.model_copy(update={"rows": [*paper.rows, ["x", "not_there", "-", "-", "-"]]})
    with pytest.warns(UserWarning, match="has no row 'not_there'"):
        assert len(missing_experiments(wider, [], "cpu")) == len(load_recipe(paper.recipe).rows)


def test_a_table_that_is_not_there_suggests_the_nearest():
    with pytest.raises(Unknown, match="did you mean 'table-2'"):
        chosen_tables("tabel-2")
    assert len(chosen_tables("all")) == 8


def test_a_row_whose_seeds_are_of_different_code_is_marked_and_says_which(tmp_path):
    store(tmp_path, "split_cifar100", "er", {1234: 0.5, 1235: 0.6})
    store(tmp_path, "split_cifar100", "agem", {1234: 0.5, 1235: 0.6})
    codes = {("er", 1234): "a", ("er", 1235): "b", ("agem", 1234): "a", ("agem", 1235): "a"}
    results = ResultStore(tmp_path)
    for result in results.results():
        code = {"core.model": codes[result.experiment.row, result.experiment.seed] * 8}
        results.save(result.model_copy(update={"code": code}))
    table = made("table-2", tmp_path)
    labels = {row.name: row.label for row in table.rows}
    assert labels["er"].endswith(f" {MARK}")
    assert MARK not in labels["agem"]
    (note,) = (note for note in table.notes if MARK in note)
    assert "seed 1235 by other code than seed 1234 (core.model)" in note
    first, second = ({"core.model": letter * 8} for letter in "ab")
    same = Equivalences({digest_of(first): "x", digest_of(second): "x"})
    (paper,) = chosen_tables("table-2")
    again = make_table(paper, stored_runs([tmp_path]), "full", same)
    assert not any(MARK in text for text in [*again.notes, *(row.label for row in again.rows)])
