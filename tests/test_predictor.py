"""Snapshots: immutable predictors of one moment, for every method."""

from __future__ import annotations

import doctest
import inspect
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from holdfast import Learner, learner, predictor
from holdfast.methods._base import Method
from holdfast.methods.er import ER
from holdfast.parts import names
from holdfast.practice import PracticeOptions
from holdfast.settings import LearnerSettings
from tests.support.same import assert_same
from tests.support.toy import toy_batches
from tests.support.trees import compact

VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in names("methods")},
    "er, average": {"method": "er", "average": 0.9},
    "drr, by memory": {"method": {"name": "drr", "classifier": "memory"}, "average": 0.9},
    "drr, by centroids": {"method": {"name": "drr", "classifier": "centroids"}},
    "analytic, random features": {"method": {"name": "analytic", "width": 12}},
    "slda, setting task": {"method": "slda", "setting": "task"},
}
each_variant = pytest.mark.parametrize("variant", VARIANTS)
BATCHES = {setting: toy_batches(setting)[:16] for setting in ("class", "task")}


def taught(variant: str, n: int = 12, **options: Any) -> Learner:
    backbone = {"name": "mlp", "hidden": [8]}
    made = Learner(**({"backbone": backbone, "memory": 30, "setting": "class"} | VARIANTS[variant] | options))
    for x, y, task in BATCHES[made.settings.setting][:n]:
        made.observe(x[:4], y[:4], task)
    return made


def task_of(one: Learner) -> int | None:
    return 0 if one.settings.setting == "task" else None


def looked_at(one: Any, x: Tensor, task: int | None) -> list[Tensor]:
    return [one.scores(x, task), one.predict(x, task), one.features(x)]


def test_the_examples_run():
    assert doctest.testmod(predictor).failed == 0
    assert doctest.testmod(learner).failed == 0


@each_variant
def test_a_snapshot_predicts_the_same_bits_and_stays_as_it_is(variant: str):
    one = taught(variant)
    x, task = BATCHES["class"][0][0], task_of(one)
    taken = one.snapshot()
    then = looked_at(one, x, task)
    assert_same(looked_at(taken, x, task), then)
    for x_new, y, new_task in BATCHES[one.settings.setting][12:]:
        one.observe(x_new, y, new_task)
    assert not torch.equal(one.scores(x, task), then[0])
    assert_same(looked_at(taken, x, task), then)
    assert taken.n_observed == 12


@each_variant
def test_taking_snapshots_changes_nothing(variant: str):
    one, other = taught(variant), taught(variant)
    before = compact(one.state_dict())
    taken = one.snapshot()
    taken.predict(BATCHES["class"][0][0], task_of(one))
    assert_same(compact(one.state_dict()), before)
    for each in (one, other):
        for x, y, task in BATCHES[each.settings.setting][12:]:
            each.observe(x, y, task)
    assert_same(one.state_dict(), other.state_dict())


def test_a_snapshot_holds_no_stored_inputs_unless_they_predict():
    for method in ("er", "drr", "scr", "der", "knn", "gem"):
        held = vars(taught(method).snapshot().method)
        columns = held["memory"].columns if "memory" in held else {}
        assert set(columns) <= {"y", "task", "extra.feature"}
        assert bool(columns) == (method == "knn")
        assert "optimizer" not in held


def test_a_snapshot_before_anything_was_learned_is_refused():
    with pytest.raises(RuntimeError, match="nothing was learned yet"):
        Learner("er").snapshot()
    with pytest.raises(RuntimeError, match="nothing was learned yet"):
        Learner("er", input_shape=(3,)).snapshot().predict(torch.ones(1, 3))


def test_a_snapshot_refuses_what_the_learner_refuses():
    taken = taught("er").snapshot()
    with pytest.raises(ValueError, match="this learner takes"):
        taken.predict(torch.ones(1, 3))
    with pytest.raises(ValueError, match="predict got a task"):
        taken.predict(BATCHES["class"][0][0], 0)


def test_a_snapshot_of_a_network_of_ones_own_with_dropout_and_batch_statistics():
    backbone = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
    one = taught("er", backbone=backbone)
    x = BATCHES["class"][0][0]
    taken = one.snapshot()
    assert_same(looked_at(taken, x, None), looked_at(one, x, None))
    assert all(layer.training for layer in backbone)


@dataclass(kw_only=True, eq=False)
class ByCounting(ER):
    """Score by what is stored, without saying so."""

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        counts = self.memory.y.bincount(minlength=self.model.head.n_classes)
        return counts.expand(len(x), -1).double()


def test_a_method_of_ones_own_that_does_not_say_what_it_reads_is_copied_whole():
    one = Learner(f"{ByCounting.__module__}:{ByCounting.__name__}", memory=30, setting="class")
    x, y, _ = BATCHES["class"][0]
    one.observe(x, y, 0)
    taken, then = one.snapshot(), one.scores(x)
    one.observe(x[:3], y[:3], 0)
    assert not torch.equal(one.scores(x), then)
    assert torch.equal(taken.scores(x), then)


def test_the_keywords_of_a_learner_are_the_settings_with_their_defaults():
    keywords = inspect.signature(Learner.__init__).parameters
    for name, field in LearnerSettings.model_fields.items():
        default = keywords[name].default
        if name in ("method", "backbone", "selection", "retrieval"):
            assert default is None or default == field.default.name
        else:
            assert default == field.default, name


def test_a_learner_of_stated_settings_is_the_one_of_keywords():
    one = taught("drr")
    again = Learner.from_settings(one.settings, practice=PracticeOptions())
    for x, y, task in BATCHES["class"][:12]:
        again.observe(x[:4], y[:4], task)
    assert_same(again.state_dict(), one.state_dict())


def test_every_method_of_ours_says_what_it_reads():
    from holdfast.parts import find

    for name in names("methods"):
        method: type[Method] = find("methods", name)
        assert method._known_reads() is not None, name
