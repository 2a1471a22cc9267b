"""The classifier of River: its own checks, its evaluation, frames, mixed columns and pickles."""

from __future__ import annotations

import itertools
import math
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import checks, compose, datasets, evaluate, metrics, preprocessing

from holdfast.adapters.river import LABEL, RiverClassifier
from holdfast.core.checkpoint import CorruptCheckpoint
from holdfast.tables import BadRow, TableLearner
from tests.support.same import assert_same

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.core.input_watch.InputWarning")  # few rows look alike

SMALL: dict[str, Any] = {"hidden": 8, "replay_size": 10}
CHECKS = list(checks.yield_checks(RiverClassifier()))


def rows(n: int = 60, seed: int = 0) -> list[tuple[dict[str, Any], str]]:
    """Rows with numbers, categories and missing values; the label follows from both."""
    rng = random.Random(seed)
    made = []
    for i in range(n):
        size, place = rng.gauss(0, 1), rng.choice("ab")
        label = "big" if size > 0 and place == "a" else "small"
        made.append(({"size": None if i % 13 == 5 else size, "place": place, "noise": rng.random()}, label))
    return made


def learned(model: RiverClassifier, given: list[tuple[dict[str, Any], str]]) -> RiverClassifier:
    for x, y in given:
        model.learn_one(x, y)
    return model


@pytest.mark.filterwarnings("ignore::holdfast.core.input_watch.InputWarning")
@pytest.mark.parametrize("check", CHECKS, ids=[f"{i} {check.__name__}" for i, check in enumerate(CHECKS)])
def test_a_check_of_river(check: Callable[[Any], None]) -> None:
    random.seed(0)
    check(RiverClassifier(**SMALL))


def test_rivers_own_evaluation_learns_and_scores_it() -> None:
    model = preprocessing.StandardScaler() | RiverClassifier(**SMALL)
    found = evaluate.progressive_val_score(datasets.Phishing().take(600), model, metrics.Accuracy())
    assert found.get() > 0.8


def test_it_stands_at_the_end_of_a_pipeline_with_categories() -> None:
    model = compose.SelectType(str) | RiverClassifier(batch=5, **SMALL)
    for i in range(100):
        model.learn_one({"kind": "ab"[i % 2], "noise": float(i)}, ["no", "yes"][i % 2])
    assert model.predict_one({"kind": "b", "noise": 0.0}) == "yes"


def test_rows_one_by_one_and_in_frames_lead_to_what_a_learner_of_tables_learns() -> None:
    given = rows(40)
    one = learned(RiverClassifier(batch=8, **SMALL), given)
    many = RiverClassifier(batch=8, **SMALL)
    for start in (0, 5, 25):
        part = given[start : {0: 5, 5: 25, 25: 40}[start]]
        many.learn_many(pd.DataFrame([x for x, _ in part]), pd.Series([y for _, y in part]))
    table = TableLearner(LABEL, batch=8, **SMALL)
    table.learn({name: x[name] for name in sorted(x)} | {LABEL: y} for x, y in given)
    assert_same(one.learner.state_dict(), table.state_dict())
    assert_same(many.learner.state_dict(), table.state_dict())


def test_mixed_columns_with_missing_values_are_learned() -> None:
    model = learned(RiverClassifier(**SMALL), rows(600))
    right = [model.predict_one(x) == y for x, y in rows(200, seed=1)]
    assert np.mean(right) > 0.8


def test_predictions_of_frames_keep_the_index_and_name_the_labels() -> None:
    model = learned(RiverClassifier(**SMALL), rows())
    frame = pd.DataFrame([x for x, _ in rows(4, seed=1)], index=[7, 3, 5, 1])
    chances = model.predict_proba_many(frame)
    assert list(chances.index) == [7, 3, 5, 1]
    assert set(chances.columns) == {"big", "small"}
    assert model.predict_many(frame).tolist() == chances.idxmax(axis="columns").tolist()
    np.testing.assert_allclose(chances.sum(axis="columns"), 1)


def test_until_the_first_batch_is_learned_the_shares_of_labels_predict() -> None:
    model = RiverClassifier(batch=4, **SMALL)
    x = {"size": 1.0}
    assert model.predict_proba_one(x) == {}
    assert model.predict_one(x) is None
    assert model.predict_many(pd.DataFrame([x, x])).tolist() == [None, None]
    for y in ("a", "b", "a"):
        model.learn_one(x, y)
    assert model.predict_proba_one(x) == {"a": 2 / 3, "b": 1 / 3}
    model.learn_one(x, "b")
    assert set(model.predict_proba_one(x)) == {"a", "b"}
    model.learn_one(x, "late")
    assert model.predict_proba_one(x)["late"] == 0


def test_columns_that_come_later_are_left_out_and_absent_ones_are_missing() -> None:
    model = learned(RiverClassifier(**SMALL), rows(40))
    x = {"size": 0.5, "place": "a", "noise": 0.1}
    assert model.predict_proba_one(x | {"new": 3, "other": "text"}) == model.predict_proba_one(x)
    assert model.predict_proba_one({"place": "a"}) == model.predict_proba_one({"place": "a", "size": math.nan})


def test_a_bad_row_is_refused_and_changes_nothing() -> None:
    model = learned(RiverClassifier(**SMALL), rows(25))
    before = pickle.dumps(model)
    with pytest.raises(BadRow, match="expected a number"):
        model.learn_one({"size": "many", "place": "a", "noise": 0.5}, "big")
    with pytest.raises(BadRow, match="found no label"):
        model.learn_one({"size": 1.0, "place": "a", "noise": 0.5}, None)
    frame = pd.DataFrame([{"size": 1.0, "place": "a", "noise": 0.5}, {"size": "x", "place": "a", "noise": 0.5}])
    with pytest.raises(BadRow, match="row 1"):
        model.learn_many(frame, ["big", "small"])
    assert pickle.dumps(model) == before


def test_a_pickle_holds_a_checkpoint_as_bytes_and_goes_on_to_the_same_bits() -> None:
    given = rows(50)
    model = learned(RiverClassifier(**SMALL), given[:25])
    assert isinstance(model.__getstate__()["_table"], bytes)
    again = pickle.loads(pickle.dumps(model))
    for x, y in itertools.islice(given, 25, None):
        again.learn_one(x, y)
        model.learn_one(x, y)
    assert_same(again.learner.state_dict(), model.learner.state_dict())


def test_a_pickle_whose_bytes_were_changed_is_refused() -> None:
    state = learned(RiverClassifier(**SMALL), rows(25)).__getstate__()
    changed = bytearray(state["_table"])
    changed[-5] ^= 1
    with pytest.raises(CorruptCheckpoint):
        RiverClassifier.__new__(RiverClassifier).__setstate__(state | {"_table": bytes(changed)})


def test_weights_of_rows_reach_the_learner() -> None:
    given = rows(40)
    one, many, plain = (RiverClassifier(batch=8, **SMALL) for _ in range(3))
    for i, (x, y) in enumerate(given):
        one.learn_one(x, y, w=[1.0, 0.0, 3.5][i % 3])
        plain.learn_one(x, y, w=1)
    frame, labels = pd.DataFrame([x for x, _ in given]), [y for _, y in given]
    many.learn_many(frame, labels, w=pd.Series([[1.0, 0.0, 3.5][i % 3] for i in range(40)]))
    assert_same(many.learner.state_dict(), one.learner.state_dict())
    assert_same(plain.learner.state_dict(), learned(RiverClassifier(batch=8, **SMALL), given).learner.state_dict())
    assert one.predict_proba_one(given[0][0]) != plain.predict_proba_one(given[0][0])
    with pytest.raises(BadRow, match="row 0: found -1 in column 'w', expected a weight"):
        one.learn_one(*given[0], w=-1)
    again = pickle.loads(pickle.dumps(one))
    more = rows(40, seed=1)
    for model in (one, again):
        model.learn_many(pd.DataFrame([x for x, _ in more]), [y for _, y in more], w=0.5)
    assert_same(again.learner.state_dict(), one.learner.state_dict())
