"""The paper's figures are those of its LaTeX, and their numbers those of stored results."""

import re
import sys

import numpy as np
import pytest

from holdfast.experiments.probes.record import RECORD
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import ResultStore
from holdfast.report.drift_map import NO_MAP, drift_map
from holdfast.report.figures import make_figure, missing_for_figure, paper_figures, with_maps
from holdfast.report.paper import make_table, paper_tables, stored_runs
from tests.support.made_up_results import learned_in_turn, put_record, store, store_in_turn
from tests.support.places import TEX

BENCHMARKS = ["permuted_mnist", "split_cifar100", "split_cub", "split_awa"]


@pytest.mark.real_data
def test_the_figures_stand_in_the_papers_latex_in_its_order():
    if not TEX.exists():
        pytest.skip(f"no LaTeX of the paper at {TEX}: set HOLDFAST_PAPER")
    blocks = re.findall(r"\\begin{figure\*?}.*?\\end{figure\*?}", TEX.read_text(), re.DOTALL)
    captions = {
        label: block
        for block in blocks
        for label in re.findall(r"\\label{(fig:[^}]*)}", block)
        if label in {figure.label for figure in paper_figures().values()}
    }
    assert [figure.label for figure in paper_figures().values()] == list(captions)
    assert "when they just finish their training" in captions["fig:lca"]
    assert "from $A_1$ to $A_T$" in captions["fig:acc"]
    assert "task 1 on Permuted MNIST" in captions["fig:mnist_tsne"]
    assert "tasks 1, 9 and 17" in captions["fig:mnist_tsne"]


@pytest.mark.parametrize("figure", paper_figures().values(), ids=lambda figure: figure.id)
def test_every_recipe_of_a_figure_has_a_table_and_the_rows_of_the_figure(figure):
    for name in figure.recipes:
        assert [table.id for table in paper_tables().values() if table.recipe == name]
        assert set(figure.rows) <= set(load_recipe(name).rows)


def made(name, *folders, size="full"):
    return make_figure(paper_figures()[name], stored_runs(folders), size)


def row_of(table, name):
    (found,) = (row for row in table.rows if row.name == name)
    return found


def test_what_was_just_learned_is_the_mean_of_the_diagonal(tmp_path):
    results = {
        name: {row: store_in_turn(tmp_path, name, row, [1234, 1235], n_tasks=5) for row in ("er", "drr")}
        for name in BENCHMARKS
    }
    (table,) = made("figure-lca", tmp_path).tables
    assert [column.title for column in table.columns] == ["Permuted MNIST", "Split CIFAR", "Split CUB", "Split AWA"]
    for row in ("er", "drr"):
        for place, name in enumerate(BENCHMARKS):
            cell = row_of(table, row).cells[place]
            for result in results[name][row]:
                total = 0.0
                for t in range(5):
                    total += result.accuracies[t][t]
                assert cell.values[result.experiment.seed] == pytest.approx(100 * total / 5)
            assert cell.std == pytest.approx(abs(cell.values[1234] - cell.values[1235]) / 2)
            assert [run.seed for run in cell.runs] == [1234, 1235]


def test_the_trend_is_the_average_over_the_tasks_seen_so_far(tmp_path):
    results = store_in_turn(tmp_path, "split_awa", "scr", [1234, 1236], n_tasks=6)
    *others, table = made("figure-acc", tmp_path).tables
    assert [other.rows for other in others] == [(), (), ()]
    assert [column.title for column in table.columns] == [f"A_{t} (%)" for t in (1, 2, 3, 4, 5, 6)]
    for result in results:
        for t in range(6):
            total = 0.0
            for j in range(t + 1):
                total += result.accuracies[t][j]
            found = row_of(table, "scr").cells[t].values[result.experiment.seed]
            assert found == pytest.approx(100 * total / (t + 1))


@pytest.mark.parametrize(
    ("n_tasks", "tasks"), [(17, [1, 9, 17]), (20, [1, 9, 17]), (5, [1, 3, 5]), (4, [1, 2, 4]), (2, [1, 2]), (1, [1])]
)
def test_drift_is_how_far_the_first_task_moved(n_tasks, tasks, tmp_path):
    results = store_in_turn(tmp_path, "permuted_mnist", "agem", [1234, 1235], n_tasks=n_tasks)
    (table,) = made("figure-tsne", tmp_path).tables
    assert [column.title for column in table.columns] == [f"after task {task}" for task in tasks]
    for result in results:
        found = [cell.values[result.experiment.seed] for cell in row_of(table, "agem").cells]
        assert found == [result.moved[task - 1][0] for task in tasks]


def test_the_map_has_only_the_methods_of_the_figure(tmp_path):
    for row in ("er", "agem", "drr"):
        store_in_turn(tmp_path, "permuted_mnist", row, [1234])
    (table,) = made("figure-tsne", tmp_path).tables
    assert [row.name for row in table.rows] == ["agem", "drr"]
    assert any(note == "permuted_mnist, not run: DER, SCR, MDMT-R." for note in table.notes)


def test_a_figure_shows_the_runs_that_the_table_shows(tmp_path):
    store(tmp_path, "split_cifar100", "er", {1234: 0.1}, size="cpu")
    store(tmp_path, "split_cifar100", "er", {1234: 0.2, 1235: 0.3})
    store(tmp_path, "split_cifar100", "er", {1234: 0.4, 1235: 0.4, 1236: 0.4}, lr=0.5)
    store(tmp_path, "split_cifar100", "drr", {1234: 0.4, 1235: 0.4, 1236: 0.4}, lr=0.5)
    store(tmp_path, "split_cifar100", "scr", {1234: 0.1}, stream__tasks="tuning")
    store(tmp_path, "split_cifar100", "mer", {7: 0.1})
    for size in ("cpu", "full"):
        table = make_table(paper_tables()["table-2"], stored_runs([tmp_path]), size)
        (learned,), trends = (
            made("figure-lca", tmp_path, size=size).tables,
            made("figure-acc", tmp_path, size=size).tables,
        )
        in_table = {row.name: row.cells[0] for row in table.rows if row.cells[0].values}
        for shown in (
            {row.name: row.cells[1] for row in learned.rows},
            {row.name: row.cells[0] for row in trends[1].rows},
        ):
            assert {row: cell.runs for row, cell in shown.items()} == {row: cell.runs for row, cell in in_table.items()}
            assert {row: cell.departures for row, cell in shown.items()} == {
                row: cell.departures for row, cell in in_table.items()
            }


def test_notes_say_what_a_size_changes_what_departs_and_what_was_not_run(tmp_path):
    store(tmp_path, "split_cifar100", "er", {1234: 0.1}, size="cpu")
    store(tmp_path, "split_cifar100", "agem", {1234: 0.1}, size="cpu", lr=0.5)
    store(tmp_path, "split_cub", "er", {1234: 0.1}, size="cpu")
    figure = made("figure-lca", tmp_path, size="cpu")
    table = make_table(paper_tables()["table-2"], stored_runs([tmp_path]), "cpu")
    assert table.notes[0].startswith("split_cifar100 in size cpu: ")
    assert "; replay_size=32 instead of 256 (" in table.notes[0]
    assert table.notes[0] in figure.notes
    assert "† A-GEM on split_cifar100: lr=0.5 instead of 0.03." in figure.notes
    assert any(re.match("split_cub is not the paper's setup: .*EfficientNet-Lite0", note) for note in figure.notes)
    assert "permuted_mnist: no run is stored." in figure.notes
    (absent,) = (note for note in figure.notes if note.startswith("split_cifar100, not run: "))
    assert "DRR (Ours), " in absent
    assert "JOINT" not in absent
    assert " ER," not in absent
    by_panel = made("figure-acc", tmp_path, size="cpu").tables
    assert by_panel[0].notes == ("permuted_mnist: no run is stored.",)
    assert not any("split_cub" in note for note in by_panel[1].notes)


def test_what_learned_all_tasks_at_once_has_no_place(tmp_path):
    store(tmp_path, "permuted_mnist", "joint", {1234: 0.5})
    assert not any(table.rows for name in paper_figures() for table in made(name, tmp_path).tables)


def test_rows_stand_in_the_papers_order_then_ours_and_each_has_one_place_in_all_figures(tmp_path):
    recipe = load_recipe("split_cifar100")
    for row in recipe.rows:
        store(tmp_path, "split_cifar100", row, {1234: 0.1})
    store(tmp_path, "permuted_mnist", "drr", {1234: 0.1})
    figures = [made(name, tmp_path) for name in paper_figures()]
    (table,) = figures[0].tables
    printed = [name for _, name, *_ in paper_tables()["table-2"].rows if name != "joint"]
    ours = [name for name in recipe.rows if name not in printed and name != "joint"]
    assert sorted(row.name for row in table.rows) == sorted(printed + ours)
    assert [row.name for row in table.rows if row.name in printed] == printed
    assert {figure.methods for figure in figures} == {figures[0].methods}
    assert len(set(figures[0].methods)) == len(figures[0].methods)
    assert figures[0].methods[0] == "drr"


def test_numbers_of_drift_that_do_not_fit_are_left_out_and_named(tmp_path):
    (good,) = store_in_turn(tmp_path, "permuted_mnist", "drr", [1234], n_tasks=3)
    (bad,) = store_in_turn(tmp_path, "permuted_mnist", "agem", [1234], n_tasks=3)
    (endless,) = store_in_turn(tmp_path, "permuted_mnist", "der", [1234], n_tasks=3)
    ResultStore(tmp_path).save(bad.model_copy(update={"moved": bad.moved[:2]}))
    moved = [[0.0], [float("inf"), 0.0], *endless.moved[2:]]
    path = ResultStore(tmp_path).folder(endless.experiment) / "result.json"
    path.write_text(path.read_text().replace(str(endless.moved[1][0]), "1e999"))
    (table,) = made("figure-tsne", tmp_path).tables
    assert "Run, but without these numbers: A-GEM." in table.notes
    assert [cell.mean for cell in row_of(table, "drr").cells] == [good.moved[t][0] for t in range(3)]
    assert [cell.mean for cell in row_of(table, "der").cells] == [0.0, None, moved[2][0]]


def test_what_a_figure_misses_is_what_its_rows_lack(tmp_path):
    store(tmp_path, "permuted_mnist", "drr", {1234: 0.5, 1235: 0.5}, size="cpu")
    missing = missing_for_figure(paper_figures()["figure-acc"], stored_runs([tmp_path]), "cpu")
    recipes = [load_recipe(name).sized("cpu") for name in BENCHMARKS]
    wanted = {(recipe.name, row) for recipe in recipes for row in recipe.rows if row != "joint"}
    assert {(each.benchmark, each.row) for each in missing} == wanted - {("permuted_mnist", "drr")}
    assert {each.seed for each in missing if each.benchmark == "split_cifar100"} == {1234}


def test_a_map_misses_what_left_no_record(tmp_path):
    recorded, bare = store_in_turn(tmp_path, "permuted_mnist", "drr", [1234, 1235], size="cpu")
    put_record(tmp_path, recorded)
    missing = missing_for_figure(paper_figures()["figure-tsne"], stored_runs([tmp_path]), "cpu")
    assert {(each.row, each.seed) for each in missing} == {
        (row, seed) for row in ("agem", "der", "scr", "mdmt_r", "drr") for seed in (1234, 1235)
    } - {("drr", 1234)}
    assert bare.experiment in missing


def test_of_equal_runs_the_one_with_a_record_counts(tmp_path):
    for folder in ("a", "b", "c"):
        (result,) = store_in_turn(tmp_path / folder, "permuted_mnist", "drr", [1234])
        if folder != "a":
            put_record(tmp_path / folder, result)
    (run,) = stored_runs([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    assert run.path.is_relative_to(tmp_path / "b")


def test_maps_are_of_the_first_run_with_a_record(tmp_path):
    pytest.importorskip("openTSNE", reason="openTSNE is not installed")
    _, second = store_in_turn(tmp_path, "permuted_mnist", "drr", [1234, 1235])
    (other,) = store_in_turn(tmp_path, "permuted_mnist", "agem", [1234])
    store_in_turn(tmp_path, "permuted_mnist", "scr", [1234])
    records = {"drr": put_record(tmp_path, second), "agem": put_record(tmp_path, other)}
    figure = with_maps(made("figure-tsne", tmp_path))
    assert [(each.row, each.seed) for each in figure.maps] == [("agem", 1234), ("drr", 1235)]
    for each in figure.maps:
        assert each.tasks == (1, 9, 17)
        assert np.array_equal(each.places, drift_map(records[each.row].features.numpy()[[0, 8, 16]]))
        assert np.array_equal(each.y, records[each.row].y.numpy())
    assert figure.maps[1].moved == tuple(second.moved[t][0] for t in (0, 8, 16))
    assert "SCR: no record is stored." in figure.notes
    assert any("seed 1234, 1235" in note for note in figure.notes)


def broken(folder, result):
    put_record(folder, result)
    path = ResultStore(folder).folder(result.experiment) / RECORD
    path.write_bytes(path.read_bytes()[:-10])
    return path


def of_another(folder, result):
    other = learned_in_turn(load_recipe("permuted_mnist").experiment("er"), np.random.default_rng(0), 17)
    put_record(folder, other)
    foreign = ResultStore(folder).folder(other.experiment) / RECORD
    path = ResultStore(folder).folder(result.experiment) / RECORD
    foreign.rename(path)
    return path


def a_folder(folder, result):
    path = ResultStore(folder).folder(result.experiment) / RECORD
    path.mkdir()
    return path


@pytest.mark.parametrize("spoilt", [broken, of_another, a_folder])
def test_a_record_that_cannot_be_used_is_named_and_passed_over(spoilt, tmp_path):
    pytest.importorskip("openTSNE", reason="openTSNE is not installed")
    (bad,) = store_in_turn(tmp_path, "permuted_mnist", "agem", [1234])
    (good,) = store_in_turn(tmp_path, "permuted_mnist", "drr", [1234])
    put_record(tmp_path, good)
    path = spoilt(tmp_path, bad)
    with pytest.warns(UserWarning, match=re.escape(str(path))):
        figure = with_maps(made("figure-tsne", tmp_path))
    assert [each.row for each in figure.maps] == ["drr"]
    assert "A-GEM: no record is stored." in figure.notes


def test_a_record_of_a_handful_of_samples_makes_no_map(tmp_path):
    pytest.importorskip("openTSNE", reason="openTSNE is not installed")
    (result,) = store_in_turn(tmp_path, "permuted_mnist", "drr", [1234])
    (few,) = store_in_turn(tmp_path, "permuted_mnist", "agem", [1234])
    put_record(tmp_path, result)
    put_record(tmp_path, few, n=5)
    assert "A-GEM: its record makes no map." in with_maps(made("figure-tsne", tmp_path)).notes


def test_without_opentsne_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    (result,) = store_in_turn(tmp_path, "permuted_mnist", "drr", [1234])
    put_record(tmp_path, result)
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(ValueError, match=re.escape(NO_MAP)):
        with_maps(made("figure-tsne", tmp_path))
    assert made("figure-tsne", tmp_path).tables[0].rows


def test_nothing_to_draw_is_a_sentence(tmp_path):
    for name in paper_figures():
        with pytest.raises(ValueError, match=f"no run for {name} is stored"):
            with_maps(made(name, tmp_path))
    store_in_turn(tmp_path, "permuted_mnist", "drr", [1234])
    with pytest.raises(ValueError, match="no run for figure-tsne has a record"):
        with_maps(made("figure-tsne", tmp_path))
