"""What the page is drawn from is what is stored."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from holdfast.core.fingerprint import digest_of
from holdfast.experiments import metrics
from holdfast.experiments.equivalent import EQUIVALENT, MARK
from holdfast.experiments.probes.record import RECORD, read_record
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.run import run
from holdfast.experiments.tables import comparison, drift_rows
from holdfast.report.page_data import MAP_SIZE, NO_MAP, Data, page_data
from tests.support.made_up_results import result as made_up_result
from tests.support.made_up_results import store

STORED = Path(__file__).parents[2] / "results" / "permuted_digits"
SMALL = {"stream.n_tasks": 2, "stream.samples_per_task": 60}


def stored_results() -> list[Result]:
    return ResultStore(STORED).results()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small runs with a record and one without."""
    folder = tmp_path_factory.mktemp("recorded")
    recipe = load_recipe("split_digits")
    for row, seed, record in (("er", 1, False), ("er", 2, True), ("drr", 1, True)):
        selection = {"selection": "centroid"} if row == "drr" else {}
        run(recipe.experiment(row, seed=seed, changes=SMALL | selection), ResultStore(folder), record=record)
    return folder


@pytest.fixture(scope="module")
def shown(recorded: Path) -> Data:
    """What the page shows of them."""
    return page_data(recorded, base=Path())


def test_every_run_is_told_as_it_is_stored():
    data = page_data(STORED, base=STORED.parent)
    (section,) = data["sections"]
    told = {(method["label"], run["seed"]): run for method in section["methods"] for run in method["runs"]}
    results = stored_results()
    assert len(told) == len(results) == section["n_runs"]
    for result in results:
        run = told[result.experiment.row, result.experiment.seed]
        assert run["accuracies"] == result.accuracies
        assert run["metrics"] == result.metrics
        assert (run["seconds"], run["n_steps"]) == (result.seconds, result.n_steps)
        assert (STORED.parent / unquote(run["address"]).partition("#")[0]).is_file()


def test_curves_are_the_metrics_over_seeds():
    (section,) = page_data(STORED, base=Path())["sections"]
    for method in section["methods"]:
        group = [r for r in stored_results() if r.experiment.row == method["label"]]
        n_learned = len(group[0].accuracies)
        by_task = [[metrics.average_accuracy(r.matrix, t) for r in group] for t in range(n_learned)]
        average = method["curves"]["average"]
        np.testing.assert_allclose(average["mean"], np.mean(by_task, axis=1), rtol=1e-12)
        np.testing.assert_allclose(average["deviation"], np.std(by_task, axis=1), rtol=1e-9, atol=1e-15)
        assert method["accuracy"]["mean"][0] == pytest.approx(average["mean"][-1])
        assert method["cost"]["mean"][0] == pytest.approx(np.mean([1000 * r.seconds / r.n_steps for r in group]))
        if method["is_bound"]:
            assert (method["label"], method["curves"]["learned"]["mean"]) == ("joint", [])
            continue
        expected = np.mean([metrics.learning_accuracy(r.matrix) for r in group])
        assert np.mean(method["curves"]["learned"]["mean"]) == pytest.approx(expected)
        np.testing.assert_allclose(
            [row[: t + 1] for t, row in enumerate(method["mean_accuracies"])][-1],
            np.mean([r.matrix for r in group], axis=0)[-1],
        )


def test_curves_of_drift_are_those_of_the_rows_of_text(tmp_path):
    for result in stored_results()[:12]:
        folder = tmp_path / result.experiment.digest
        (folder / result.experiment.path).mkdir(parents=True)
        ResultStore(folder).save(result)
        ((method,),) = (section["methods"] for section in page_data(folder, base=Path())["sections"])
        names = ("first_moved", "old_moved", "nearest_apart", "mean_apart")
        columns = [["" if v is None else f"{v:.2f}" for v in method["curves"][name]["mean"]] for name in names]
        _, lines = drift_rows(result)
        assert [list(line) for line in zip(*columns, strict=True)] == [line[1:] for line in lines]


def test_the_table_has_the_numbers_of_the_comparison():
    (section,) = page_data(STORED, base=Path())["sections"]
    header, lines = comparison(stored_results())
    table = section["table"]
    places = [table["header"].index(title) for title in header]
    found = [
        [line["label"], *(cell["text"] for cell in line["cells"]), str(line["n_seeds"])] for line in table["lines"]
    ]
    assert [[line[place] for place in places] for line in found] == lines


def test_the_best_is_marked_beyond_the_noise_and_a_bound_does_not_compete(tmp_path):
    store(tmp_path, "permuted_digits", "er", {1: 0.80, 2: 0.81, 3: 0.82})
    store(tmp_path, "permuted_digits", "finetune", {1: 0.30, 2: 0.31, 3: 0.33})
    store(tmp_path, "permuted_digits", "joint", {1: 0.90, 2: 0.91, 3: 0.92})
    (section,) = page_data(tmp_path, base=Path())["sections"]
    best = {line["label"]: line["cells"][0]["best"] for line in section["table"]["lines"]}
    assert best == {"er": True, "finetune": False, "joint": False}


def test_runs_on_other_tasks_stand_in_sections_of_their_own(tmp_path):
    store(tmp_path, "permuted_digits", "er", {1: 0.5})
    store(tmp_path, "permuted_digits", "er", {1: 0.5}, stream__tasks="tuning")
    store(tmp_path, "split_digits", "er", {1: 0.5})
    recipe = load_recipe("permuted_digits")
    longer = recipe.experiment("er", seed=1, changes={"stream.n_tasks": 3})
    with ResultStore(tmp_path).claimed(longer):
        ResultStore(tmp_path).save(made_up_result(longer, n_tasks=3))
    data = page_data(tmp_path, base=Path())
    assert [section["title"] for section in data["sections"]] == [
        "permuted_digits – 2 tasks",
        "permuted_digits – 3 tasks",
        "split_digits",
        "permuted_digits – tuning tasks",
    ]
    assert data["labels"] == ["er"]  # one look everywhere


def test_a_corrupt_and_a_foreign_file_are_named_and_passed_over(tmp_path):
    store(tmp_path, "permuted_digits", "er", {1: 0.5, 2: 0.6})
    (good, other) = sorted(tmp_path.rglob("result.json"))
    files = {"half": good.read_text()[:100], "foreign": '{"a": 1}', "bytes": b"\xff\xfe\x00", "empty": ""}
    ragged = json.loads(good.read_text()) | {"accuracies": [[0.5], [0.5, 0.6]]}
    above = json.loads(good.read_text()) | {"accuracies": [[50.0]]}
    files |= {"ragged": json.dumps(ragged), "above": json.dumps(above)}
    for name, content in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    other.with_name(RECORD).write_bytes(b"no record")
    data = page_data(tmp_path, base=Path())
    assert [section["n_runs"] for section in data["sections"]] == [2]
    assert len(data["problems"]) == len(files) + 1
    for name in files:
        assert any(f"{name}/result.json" in problem for problem in data["problems"])
    assert any(str(other.with_name(RECORD)) in problem for problem in data["problems"])


def test_numbers_that_json_has_not_are_left_out(tmp_path):
    store(tmp_path, "permuted_digits", "er", {1: 0.5})
    (path,) = tmp_path.rglob("result.json")
    strange = json.loads(path.read_text()) | {"seconds": float("inf"), "n_steps": 0, "moved": [[float("nan")]]}
    path.write_text(json.dumps(strange))
    data = page_data(tmp_path, base=Path())
    json.dumps(data, allow_nan=False)
    (method,) = data["sections"][0]["methods"]
    assert method["cost"]["mean"] == [None]
    assert method["curves"]["first_moved"]["mean"] == []
    assert "numbers of drift that do not fit" in data["problems"][0]


def test_an_empty_folder_has_no_sections(tmp_path):
    data = page_data(tmp_path, base=Path())
    assert (data["sections"], data["problems"], data["labels"]) == ([], [], [])


def test_what_a_run_recorded_is_shown(recorded, shown):
    pytest.importorskip("openTSNE", reason="openTSNE is not installed")
    assert shown["problems"] == shown["notes"] == []
    methods = {method["label"]: method["record"] for method in shown["sections"][0]["methods"]}
    assert methods["er"]["seed"] == 2  # the first that has a record
    for label, found in methods.items():
        (path,) = recorded.glob(f"split_digits/{label}/*/{RECORD}")
        record = read_record(path)
        assert record.memory is not None
        assert found["map"]["y"] == record.y.tolist()
        places = np.array(found["map"]["places"])
        assert places.shape == (2, len(record.y), 2)
        assert places.min() >= 0
        assert places.max() <= MAP_SIZE
        memory = found["memory"]
        assert memory["n"] == len(record.memory.y) == sum(n for _, _, n in memory["counts"])
        for task, y, n in memory["counts"]:
            assert n == int(((record.memory.task == task) & (record.memory.y == y)).sum())
        assert memory["ages"] == [record.n_steps - 1 - step for step in record.memory.step.tolist()]
    assert methods["er"]["memory"]["distances"] is None
    assert len(methods["drr"]["memory"]["distances"]) == methods["drr"]["memory"]["n"]


def test_the_picture_of_the_memory_has_every_thumbnail_in_its_place(recorded, shown):
    (method,) = (m for m in shown["sections"][0]["methods"] if m["label"] == "er")
    (path,) = recorded.glob(f"split_digits/er/*/{RECORD}")
    stored = read_record(path).memory
    assert stored is not None
    assert stored.thumbnails is not None
    memory = method["record"]["memory"]
    sprite = memory["sprite"]
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(sprite["png"]))))
    for i, (thumbnail, slot) in enumerate(zip(stored.thumbnails.numpy(), stored.shown.tolist(), strict=True)):
        top, left = 8 * (i // sprite["columns"]), 8 * (i % sprite["columns"])
        assert np.array_equal(picture[top : top + 8, left : left + 8], thumbnail[..., 0])
        assert memory["samples"][i]["y"] == int(stored.y[slot])
        assert memory["samples"][i]["task"] == int(stored.task[slot])


def test_without_opentsne_the_maps_are_left_out_in_one_sentence(recorded, monkeypatch):
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    data = page_data(recorded, base=Path())
    assert data["notes"] == [NO_MAP]
    assert all(method["record"]["map"] is None for method in data["sections"][0]["methods"])
    assert all(method["record"]["memory"] is not None for method in data["sections"][0]["methods"])


def test_the_record_of_another_run_is_named_and_passed_over(recorded, tmp_path):
    store(tmp_path, "permuted_digits", "er", {1: 0.5})
    (path,) = tmp_path.rglob("result.json")
    foreign = next(recorded.rglob(RECORD))
    path.with_name(RECORD).write_bytes(foreign.read_bytes())
    data = page_data(tmp_path, base=Path())
    assert "the record of another run" in data["problems"][0]
    assert data["sections"][0]["methods"][0]["record"] is None


def test_a_row_of_different_code_is_marked_and_told_until_the_two_are_known_to_be_equivalent(tmp_path):
    store(tmp_path, "split_digits", "er", {1: 0.5, 2: 0.6})
    codes = {1: {"core.model": "a" * 8}, 2: {"core.model": "b" * 8}}
    for stored in ResultStore(tmp_path).results():
        ResultStore(tmp_path).save(stored.model_copy(update={"code": codes[stored.experiment.seed]}))
    (section,) = page_data(tmp_path, base=Path())["sections"]
    assert [line["mark"] for line in section["table"]["lines"]] == [MARK]
    assert section["code"] == [f"{MARK} er: seed 2 by other code than seed 1 (core.model)"]
    (tmp_path / EQUIVALENT).write_text(
        "nonsense\n" + json.dumps({"made_by": digest_of(codes[1]), "remade_by": digest_of(codes[2]), "run": "a run"})
    )
    data = page_data(tmp_path, base=Path())
    assert data["sections"][0]["code"] == []
    assert [line["mark"] for line in data["sections"][0]["table"]["lines"]] == [""]
    assert any("line 1 is no equivalence" in problem for problem in data["problems"])
