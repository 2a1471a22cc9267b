"""MDMT-R: which classes a sample sees, what one step learns from, and what it keeps."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from holdfast import Learner
from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.classes import SETTINGS, Setting
from holdfast.methods.mdmt_r import MDMTR
from tests.support.bare import bare
from tests.support.toy import shown, toy_batches


def learned(n_batches: int, setting: Setting = "task", **options: Any) -> Learner:
    """A learner that has seen some batches of the toy stream: twelve a task, task k has the classes 2k and 2k + 1."""
    learner = bare(
        "mdmt_r",
        setting=setting,
        backbone={"name": "mlp", "hidden": [16]},
        **{"memory": 30, "lr": 0.05, "retrieval": "old_tasks"} | options,
    )
    return shown(learner, n_batches)


def method_of(learner: Learner) -> MDMTR:
    assert isinstance(learner.method, MDMTR)
    return learner.method


def one_of_each_class(setting: Setting) -> Batch:
    """A sample of each of the six classes of the toy stream, or of its two where tasks share them."""
    y = torch.tensor([0, 1, 0, 1, 0, 1] if setting == "domain" else range(6))
    task = torch.full((6,), NO_TASK) if setting == "free" else torch.tensor([0, 0, 1, 1, 2, 2])
    return Batch(torch.zeros(6, 8), y, task)


def classes_in(visible: torch.Tensor) -> list[list[int]]:
    return [row.nonzero().flatten().tolist() for row in visible]


# The classes that a sample sees.


@pytest.mark.parametrize("n_classes", [None, 9], ids=["a head that grows", "a head with room"])
@pytest.mark.parametrize("setting", ["task", "class"])
def test_new_samples_see_their_task_and_old_ones_also_the_tasks_before(setting: Setting, n_classes: int | None) -> None:
    method, batch = method_of(learned(36, setting, n_classes=n_classes)), one_of_each_class(setting)
    assert classes_in(method.own_task(batch)) == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]
    up_to_own = [[0, 1], [0, 1], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]
    assert classes_in(method.up_to_own_task(batch)) == up_to_own


@pytest.mark.parametrize(("setting", "seen"), [("domain", [0, 1]), ("free", [0, 1, 2, 3, 4, 5])])
def test_where_tasks_share_classes_or_are_not_known_all_see_all_that_were_seen(
    setting: Setting, seen: list[int]
) -> None:
    method, batch = method_of(learned(36, setting, n_classes=9)), one_of_each_class(setting)
    assert classes_in(method.own_task(batch)) == [seen] * 6
    assert classes_in(method.up_to_own_task(batch)) == [seen] * 6


def test_tasks_that_share_classes_see_them_where_the_task_is_known_when_predicting() -> None:
    learner = bare("mdmt_r", setting="task", input_shape=(8,), n_classes=4)
    for classes, task in (([0, 1], 0), ([1, 2], 1)):
        learner.announce(classes, task)
    method, batch = method_of(learner), Batch(torch.zeros(2, 8), torch.tensor([1, 1]), torch.tensor([0, 1]))
    assert classes_in(method.own_task(batch)) == [[0, 1], [1, 2]]
    assert classes_in(method.up_to_own_task(batch)) == [[0, 1], [0, 1, 2]]


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_task_margin_counts_where_a_class_belongs_to_one_known_task(setting: Setting) -> None:
    method = method_of(learned(36, setting, class_margin=0.0, logit_scale=2.0))
    x, y, task = toy_batches(setting)[35]
    batch = Batch(x, y, torch.full_like(y, NO_TASK if task is None else task))
    features, visible = method.model.features(x), method.own_task(batch)
    with_margin = method.contrast(batch, features, visible).item()
    method.task_margin = 0.0
    without = method.contrast(batch, features, visible).item()
    assert (with_margin > without) == (setting in ("task", "class"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [("task", ""), ("class", "their own task only"), ("domain", "margin rests"), ("free", "margin rests")],
)
def test_it_cautions_where_it_means_less(setting: Setting, message: str) -> None:
    caution = method_of(bare("mdmt_r", setting=setting, input_shape=(8,))).caution()
    assert message in caution if message else caution is None


# One step.


def slow_loss(method: MDMTR, batch: Batch, visible: list[set[int]], *, zero: bool, m1: float) -> float:
    """s = 8, m2 = 0.05: the loss of each sample against the rows of the head, in loops."""
    features, rows = method.model.features(batch.x).detach(), method.model.head.weight.detach()
    losses = []
    for z, y, V in zip(features, batch.y.tolist(), visible, strict=True):
        sums = 0.0
        for j in range(len(rows)):
            theta = math.acos(F.cosine_similarity(z, rows[j], dim=0).item())
            l_j = math.cos(theta + m1) if j in V else 0.0
            if j == y:
                l_j += math.cos(theta + 0.05) - math.cos(theta)
                own = math.exp(8 * l_j)
            sums += math.exp(8 * l_j) if j in V or zero else 0.0
        losses.append(-math.log(own / sums))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("blind_units", ["zero", "out"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_loss_is_the_margin_softmax_of_both_passes_and_the_change_of_old_features(
    setting: Setting, blind_units: str
) -> None:
    learner = learned(
        30, setting, n_classes=9, logit_scale=8.0, class_margin=0.05, task_margin=0.3, distillation=3.0,
        blind_units=blind_units, replay_size=1000,
    )  # fmt: skip
    method = method_of(learner)
    x, y, task = toy_batches(setting)[30]
    batch = Batch(x, y, torch.full_like(y, NO_TASK if task is None else task))
    old = method.recall(batch)
    assert set(old.task.tolist()) == ({NO_TASK} if task is None else {0, 1})

    owned = setting in ("task", "class")
    seen = set(range(2 if setting == "domain" else 6))
    new_visible = [{4, 5} if owned else seen] * len(batch)
    old_visible = [set(range(2 * k + 2)) if owned else seen for k in old.task.tolist()]
    options = {"zero": blind_units == "zero", "m1": 0.3 if owned else 0.0}
    drift = (method.model.features(old.x) - old.extra["feature"]).abs().mean().item()
    expected = slow_loss(method, batch, new_visible, **options) + slow_loss(method, old, old_visible, **options)
    assert learner.observe(x, y, task) == pytest.approx(expected + 3.0 * drift, rel=1e-4)


def test_each_step_recalls_anew_and_the_batch_is_remembered_once() -> None:
    learner = learned(14, replay_size=3, steps_per_batch=3, selection="reservoir", memory=500)
    method = method_of(learner)
    recalled: list[Batch] = []
    recall = method.recall
    method.__dict__["recall"] = lambda batch: recalled.append(recall(batch)) or recalled[-1]
    learner.observe(*toy_batches("task")[14])
    assert [len(old) for old in recalled] == [3, 3, 3]
    assert not torch.equal(recalled[0].x, recalled[1].x)
    assert len(method.memory) == 150


# The extras that are kept.


def test_features_are_stored_with_the_updated_model() -> None:
    method = method_of(learned(1))
    torch.testing.assert_close(method.memory.extra("feature"), method.model.embed(method.memory.x))


@pytest.mark.parametrize("setting", ["task", "class", "domain"])
def test_stored_features_are_taken_again_when_their_task_ends_and_then_stay(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.core.model.PREDICT_SIZE", 4)  # so that they are taken in several parts
    learner = learned(12, setting, selection={"name": "ring", "per_class": 5})
    memory = method_of(learner).memory
    at_insertion = memory.extra("feature").clone()
    learner.end_task()
    frozen = memory.extra("feature").clone()
    assert len(frozen) == 10
    assert not torch.equal(frozen, at_insertion)
    torch.testing.assert_close(frozen, method_of(learner).model.embed(memory.x))
    for x, y, task in toy_batches(setting)[12:30]:
        learner.observe(x, y, task)
    assert memory.task[:10].tolist() == [0] * 10
    assert torch.equal(memory.extra("feature")[:10], frozen)


# Predicting, options.


@pytest.mark.parametrize("setting", SETTINGS)
def test_it_predicts_by_plain_cosines_among_those_that_compete(setting: Setting) -> None:
    learner = learned(36, setting, n_classes=9)
    model, x = method_of(learner).model, toy_batches(setting)[0][0]
    before = copy.deepcopy(model.state_dict())
    scores = learner.scores(x, 1 if setting == "task" else None)
    cosines = F.cosine_similarity(model.embed(x)[:, None], model.head.weight.detach()[None], dim=2)
    competing = {"task": [2, 3], "domain": [0, 1]}.get(setting, [0, 1, 2, 3, 4, 5])
    torch.testing.assert_close(scores[:, competing], cosines[:, competing])
    others = [j for j in range(9) if j not in competing]
    assert (scores[:, others] == -math.inf).all()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.named_parameters())


def test_it_has_a_ring_and_a_cosine_head_unless_told_otherwise() -> None:
    learner = bare("mdmt_r", input_shape=(8,))
    assert learner.settings.selection.name == "ring"
    assert method_of(learner).model.head.kind == "cosine"
