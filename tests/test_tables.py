"""Tables with mixed columns, missing values and labels of any kind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast import load_learner
from holdfast.columns import BadRow
from holdfast.core.checkpoint import read_checkpoint, write_checkpoint
from holdfast.core.input_watch import InputWarning
from holdfast.data.rows import PICTURE
from holdfast.tables import Accuracy, TableLearner, as_rows, load_table_learner
from tests.support.same import assert_same

FAST = {"hidden": 8}


def rows(n: int = 200, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Loans are granted by income, in the city only."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        income, city = float(rng.normal(50_000, 20_000)), str(rng.choice(["Bern", "Oslo"]))
        yield {
            "income": "" if i % 17 == 3 else f"{income:.0f}",
            "city": city,
            "rate": rng.normal(),
            "granted": "yes" if income > 50_000 and city == "Oslo" else "no",
        }


def test_a_table_is_learned_and_the_file_holds_labels_and_columns(tmp_path: Path) -> None:
    made = TableLearner("granted", **FAST)
    found = made.learn(rows(600))
    assert found.n == 600
    assert found.window > 0.8
    made.save(tmp_path / "t.holdfast")
    again = load_table_learner(tmp_path / "t.holdfast")
    assert_same(again.state_dict(), made.state_dict())
    new = list(rows(50, seed=1))
    assert again.predict(new) == made.predict(new)
    assert set(again.predict(new)) <= {"yes", "no"}
    made.learn(new)
    again.learn(new)
    assert_same(again.state_dict(), made.state_dict())
    assert load_learner(tmp_path / "t.holdfast").n_observed == 60


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"income": "1", "city": "Oslo", "rate": 0.0}, r"row 200: found no label in column 'granted'"),
        ({"income": "1", "city": "Oslo", "rate": 0.0, "granted": " "}, r"row 200: found no label"),
        (
            {"income": "much", "city": "Oslo", "rate": 0.0, "granted": "no"},
            r"'much' in column 'income', expected a num",
        ),
        ({"income": "1e300", "city": "Oslo", "rate": 0.0, "granted": "no"}, r"below 1e15"),
        ({"income": "1", "city": "Oslo", "rate": 0.0, "new": 3, "granted": "no"}, r"column 'new'"),
    ],
    ids=["no label", "empty label", "text", "huge", "unknown column"],
)
def test_a_bad_row_is_named_and_nothing_of_its_batch_learned(row: dict[str, Any], message: str) -> None:
    made = TableLearner("granted", **FAST)
    made.learn(rows())
    before = made.state_dict()
    kept = {name: value if name == "learner" else repr(value) for name, value in before.items()}
    n_observed = made.learner.n_observed
    with pytest.raises(BadRow, match=message):
        made.observe([next(rows()), row], ["row 199", "row 200"])
    after = made.state_dict()
    assert {
        name: value if name == "learner" else repr(value) for name, value in after.items() if name != "learner"
    } == {name: value for name, value in kept.items() if name != "learner"}
    assert made.learner.n_observed == n_observed


def test_frames_dicts_of_columns_and_iterators_are_learned_alike() -> None:
    table = list(rows(60))
    by_column = {name: [row[name] for row in table] for name in table[0]}

    class Frame:
        """Stand-in with the parts of a pandas frame that are used."""

        def __init__(self) -> None:
            self.columns = list(by_column)

        def to_dict(self) -> None: ...

        def itertuples(self, *, index: bool, name: None) -> Iterator[tuple[Any, ...]]:
            return zip(*by_column.values(), strict=True)

    states = []
    for given in (table, iter(table), by_column, Frame()):
        made = TableLearner("granted", **FAST)
        made.learn(given)
        states.append(made.state_dict())
    for state in states[1:]:
        assert_same(state, states[0])


def test_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        list(as_rows({"a": [1], "b": [1, 2]}))
    for wrong in ("text", 3, [1, 2]):
        with pytest.raises(ValueError, match="give"):
            list(as_rows(wrong))


def test_accuracy_counts_as_slow_loops_do() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 2500).tolist()
    said = [c if rng.random() < (0.9 if i < 1500 else 0.3) else (c + 1) % 3 for i, c in enumerate(y)]
    found = Accuracy()
    for start in range(0, len(y), 10):
        found.update(said[start : start + 10], y[start : start + 10])
    right = [int(a == b) for a, b in zip(said, y, strict=True)]
    assert found.whole == pytest.approx(sum(right) / len(right))
    assert found.window == pytest.approx(sum(right[-1000:]) / 1000)
    weights = 0.999 ** np.arange(len(right))[::-1]
    assert found.faded == pytest.approx(float(weights @ right / weights.sum()))
    assert found.by_class == [[sum(r for r, c in zip(right, y, strict=True) if c == k), y.count(k)] for k in range(3)]
    assert any(1500 < alarm < 1800 for alarm in found.alarms)


def test_pictures_are_learned_too() -> None:
    rng = np.random.default_rng(0)
    made = TableLearner("label", backbone={"name": "mlp", "hidden": [8]}, method="er")
    made.learn(
        {PICTURE: rng.integers(0, 100, (1, 4, 4)).astype(np.uint8) + np.uint8(155 * (i // 2 % 2)), "label": i // 2 % 2}
        for i in range(400)
    )
    assert made.learner.input_dtype == torch.uint8
    assert sum(made.accuracy.last[-100:]) > 80


@pytest.mark.parametrize(
    "changed",
    [
        {"means": {}},
        {"names": ["a"]},
        {"names": ["a", "b", "b"]},
        {"flagged": ["c"]},
        {"means": {"a": math.nan}},
        {"categories": {"a": ["x"], "b": ["blue", "red"]}},
        {"places": {"b": 1}},
        {"places": {"b": 17}},
        {"rates": {"b": torch.zeros(2, 9)}},
        {"rates": {"b": torch.full((4096, 9), math.nan)}},
        {"origins": {"c": 1.0}},
        {"scales": {"a": 0.0}},
    ],
)
def test_saved_columns_that_do_not_fit_each_other_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    learner = TableLearner("label", memory=8)
    learner.observe([{"a": float(i), "b": "red" if i % 2 else "blue", "label": i % 2} for i in range(6)])
    learner.save(tmp_path / "learner")
    state = read_checkpoint(tmp_path / "learner")
    write_checkpoint(tmp_path / "learner", {**state, "columns": {**state["columns"], **changed}})
    (tmp_path / "learner.previous").unlink()
    with pytest.raises(ValueError, match="columns"):
        load_table_learner(tmp_path / "learner")


@pytest.mark.parametrize("changed", [{"every": 0}, {"by_class": [[1]]}, {"by_class": [[3, 2]]}, {"curve": [[1.0]]}])
def test_saved_accuracies_that_do_not_fit_each_other_are_refused(changed: dict[str, Any]) -> None:
    accuracy = Accuracy()
    with pytest.raises(ValueError, match="do not fit each other"):
        accuracy.load_state_dict({**accuracy.state_dict(), **changed})


def test_a_whole_number_that_no_float_holds_is_a_bad_row() -> None:
    learner = TableLearner("label", memory=8)
    learner.observe([{"a": float(i), "label": i % 2} for i in range(6)])
    with pytest.raises(BadRow, match="expected a finite number"):
        learner.observe([{"a": 10**400, "label": 1}])


def test_a_file_whose_learner_has_other_columns_or_labels_than_its_table_is_refused(tmp_path: Path) -> None:
    learner = TableLearner("label", memory=8)
    learner.observe([{"a": float(i), "label": i % 2} for i in range(6)])
    learner.save(tmp_path / "learner")
    state = read_checkpoint(tmp_path / "learner")
    for changed in ({"labels": {"known": [0]}}, {"columns": {**state["columns"], "flagged": ["a"]}}):
        write_checkpoint(tmp_path / "other", {**state, **changed})
        with pytest.raises(ValueError, match="does not fit the labels and columns"):
            load_table_learner(tmp_path / "other")


def test_a_file_from_before_categories_had_places_goes_on(tmp_path: Path) -> None:
    learner = TableLearner("label", memory=8, **FAST)
    learner.observe([{"b": "red" if i % 2 else "blue", "c": 2.0, "label": i % 2} for i in range(6)])
    learner.columns.places = {"b": 2}
    learner._learner = None
    learner.observe([{"b": "red" if i % 2 else "blue", "c": 2.0, "label": i % 2} for i in range(6)])
    learner.save(tmp_path / "learner")
    state = read_checkpoint(tmp_path / "learner")
    new = ("places", "rates", "origins", "scales", "n_rows")
    columns = {name: value for name, value in state["columns"].items() if name not in new}
    write_checkpoint(tmp_path / "old", {**state, "columns": columns})
    again = load_table_learner(tmp_path / "old")
    assert again.columns.width == 3
    assert again.predict([{"b": "red", "c": 2.0}]) == learner.predict([{"b": "red", "c": 2.0}])


def test_an_interrupted_first_batch_leaves_no_labels_and_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: Any) -> float:
        raise KeyboardInterrupt

    made = TableLearner("granted", **FAST)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.learner.Learner.observe", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.learn(rows(10))
    assert len(made.labels) == 0
    assert not made.columns.settled
    other = TableLearner("granted", **FAST)
    for each in (made, other):
        each.learn(rows(60))
    assert_same(made.state_dict(), other.state_dict())


def test_warnings_name_the_columns_of_a_table() -> None:
    made = TableLearner("label", **FAST)
    with pytest.warns(InputWarning, match="^column 'same' had one value"):
        made.learn({"kind": "ab"[i % 2], "same": 7, "size": i, "label": i % 2} for i in range(100))


def test_a_file_that_lacks_a_part_of_its_table_is_refused(tmp_path: Path) -> None:
    learner = TableLearner("label", memory=8)
    learner.observe([{"a": float(i), "label": i % 2} for i in range(6)])
    learner.save(tmp_path / "learner")
    state = read_checkpoint(tmp_path / "learner")
    del state["accuracy"]
    write_checkpoint(tmp_path / "other", state)
    with pytest.raises(ValueError, match="lacks the accuracy of its table"):
        load_table_learner(tmp_path / "other")


def test_a_row_of_weight_zero_is_as_if_it_had_not_come() -> None:
    rows = [
        {"size": i % 7, "kind": "ab"[i % 2], "label": ["no", "yes", "never"][i % 2 if i % 5 else 2]} for i in range(60)
    ]
    weighted = [row | {"share": float(i % 5 > 0)} for i, row in enumerate(rows)]
    one, two = TableLearner("label", weight="share"), TableLearner("label")
    for start in range(0, 60, 10):
        one.observe(weighted[start : start + 10])
        two.observe([row for row in rows[start : start + 10] if row["label"] != "never"])
    assert one.observe([weighted[0], weighted[5]]) == 0.0
    assert (one.n_rows, two.n_rows) == (62, 48)
    assert one.labels.known == ["yes", "no"]
    assert_same(one.learner.state_dict(), two.learner.state_dict())


def test_a_weight_counts_and_its_column_is_saved(tmp_path: Path) -> None:
    rows = [{"size": i % 7, "share": i % 3 + 0.5, "label": i % 2} for i in range(40)]
    learner, plain = TableLearner("label", weight="share"), TableLearner("label", drop=["share"])
    learner.learn(rows[:20])
    plain.learn(rows[:20])
    x = plain.inputs(rows)
    assert not torch.equal(learner.learner.scores(x), plain.learner.scores(x))
    learner.save(tmp_path / "table")
    again = load_table_learner(tmp_path / "table")
    for each in (learner, again):
        each.learn(rows[20:])
    assert_same(again.state_dict(), learner.state_dict())


@pytest.mark.parametrize("weight", [None, -1, float("inf"), "heavy", "", 1e31])
def test_a_row_whose_weight_is_none_is_bad(weight: Any) -> None:
    learner = TableLearner("label", weight="share")
    learner.learn([{"size": 1, "share": 1, "label": 0}] * 10)
    with pytest.raises(BadRow, match=r"row 10: found .* in column 'share', expected a weight: a number from 0"):
        learner.learn([{"size": 1, "share": weight, "label": 0}])
    assert learner.n_rows == 10


def test_one_column_is_not_label_and_weight() -> None:
    with pytest.raises(ValueError, match="cannot be both label and weight"):
        TableLearner("label", weight="label")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": 1, "label": {"x": 1}}, "row 6: a label is a dict"),
        ({"a": 1, "label": [1]}, "row 6: a label is a list"),
        ({"a": [0.5, 2.0], "label": 1}, "row 6: found a list in column 'a', expected a number or a text"),
    ],
    ids=["dict as label", "list as label", "list as value"],
)
def test_a_value_that_is_no_number_and_no_text_makes_a_bad_row(row: dict[str, Any], message: str) -> None:
    learner = TableLearner("label", memory=8, **FAST)
    learner.observe([{"a": float(i), "label": i % 2} for i in range(6)])
    with pytest.raises(BadRow, match=message):
        learner.observe([row])
    with pytest.raises(BadRow, match=message.replace("6", "0")):
        TableLearner("label").observe([row])


def test_a_frame_with_a_column_twice_is_refused() -> None:
    class Frame:
        """Stand-in with the parts of a pandas frame that are used."""

        columns = ("a", "a")

        def to_dict(self) -> None: ...

    with pytest.raises(ValueError, match="column 'a' twice"):
        list(as_rows(Frame()))
