"""Algorithm 2: what one step learns from, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from holdfast import Learner
from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.classes import Setting
from holdfast.methods.drr import DRR
from tests.support.bare import bare
from tests.support.replaying import assert_learn_alike
from tests.support.slow_cml import slow_cml
from tests.support.toy import Toy, shown, toy_batches


def learned(n_batches: int = 16, setting: Setting = "task", **options: Any) -> Learner:
    """A learner that has seen some batches of the toy stream, which has twelve a task."""
    settings: dict[str, Any] = {"selection": {"name": "centroid", "epsilon": 2.0}, "retrieval": "old_tasks"}
    learner = bare(
        "drr", setting=setting, memory=30, lr=0.05, backbone={"name": "mlp", "hidden": [16]}, **settings | options
    )
    return shown(learner, n_batches)


def method_of(learner: Learner) -> DRR:
    assert isinstance(learner.method, DRR)
    return learner.method


def test_the_loss_is_cml_on_new_samples_and_cml_and_cdl_on_old_ones() -> None:
    learner = learned(distillation=3.0, logit_scale=8.0, class_margin=0.05, task_margin=0.2, old_against="seen")
    method = method_of(learner)
    x, y, task = toy_batches("task")[16]
    batch = Batch(x, y, torch.full_like(y, task or 0))
    method.replay_size = 1000
    old = method.recall(batch)
    assert set(old.task.tolist()) == {0}
    new_part = slow_cml(method, batch, lambda _: {2, 3}, 8.0, 0.05, 0.2)
    old_part = slow_cml(method, old, lambda _: {0, 1, 2, 3}, 8.0, 0.05, 0.2)
    drift = float((method.model.features(old.x).detach() - old.extra["feature"]).square().mean())
    assert learner.observe(x, y, task) == pytest.approx(new_part + old_part + 3.0 * drift, rel=1e-4)


@pytest.mark.parametrize("setting", ["task", "class"])
@pytest.mark.parametrize("against", ["task", "before", "seen"])
@pytest.mark.parametrize(("blind_units", "blind"), [("out", 0.0), ("zero", 1.0)])
def test_whom_old_samples_are_contrasted_with_and_what_the_others_count(
    setting: Setting, against: str, blind_units: str, blind: float
) -> None:
    options = {"old_against": against, "new_against": "task", "blind_units": blind_units, "distillation": 0.0}
    learner = learned(26, setting, logit_scale=4.0, class_margin=0.05, task_margin=0.2, **options)
    method = method_of(learner)
    x, y, task = toy_batches(setting)[26]
    batch = Batch(x, y, torch.full_like(y, task or 0))
    method.replay_size = 1000
    old = method.recall(batch)
    assert set(old.task.tolist()) == {0, 1}
    own: dict[int, set[int]] = {k: {2 * k, 2 * k + 1} for k in range(3)}
    seen_by: dict[str, Callable[[int], set[int]]] = {
        "task": lambda k: own[k],
        "before": lambda k: set().union(*(own[i] for i in range(k + 1))),
        "seen": lambda _: set().union(*own.values()),
    }
    old_part = slow_cml(method, old, seen_by[against], 4.0, 0.05, 0.2, blind)
    new_part = slow_cml(method, batch, seen_by["task"], 4.0, 0.05, 0.2, blind)
    assert learner.observe(x, y, task) == pytest.approx(new_part + old_part, rel=1e-4)


def test_new_samples_can_be_contrasted_with_the_classes_of_their_batch_alone() -> None:
    options = {"logit_scale": 4.0, "class_margin": 0.05, "distillation": 0.0, "retrieval": "uniform"}
    learner = learned(26, "free", new_against="batch", **options)
    method = method_of(learner)
    stream = toy_batches("free")
    x, y = (torch.cat([stream[0][i], stream[26][i]]) for i in (0, 1))  # of the first task and the last
    x, y = x[y % 2 == 0], y[y % 2 == 0]
    method.replay_size = 1000
    old = method.recall(Batch(x, y, torch.full_like(y, NO_TASK)))
    old_part = slow_cml(method, old, lambda _: set(range(6)), 4.0, 0.05, 0.0)
    new_part = slow_cml(method, Batch(x, y, torch.full_like(y, NO_TASK)), lambda _: {0, 4}, 4.0, 0.05, 0.0)
    assert learner.observe(x, y) == pytest.approx(new_part + old_part, rel=1e-4)


@pytest.mark.parametrize(
    ("setting", "retrieval", "classes"),
    [
        ("task", "uniform", {4, 5}),
        ("class", "uniform", {4}),
        ("class", "old_tasks", set(range(6))),  # whoever is new is not replayed, and must be told from old classes
        ("class", "shapley", set(range(6))),
        ("class", {"name": "shapley", "old_tasks_only": False}, {4}),
        ("free", "old_tasks", {4}),  # all that is stored is old
    ],
)
def test_new_samples_are_contrasted_with_as_little_as_lets_classes_be_told_apart(
    setting: Setting, retrieval: Any, classes: set[int]
) -> None:
    method = method_of(learned(26, setting, retrieval=retrieval))
    *_, task = toy_batches(setting)[26]
    new = Batch(torch.zeros(1, 8), torch.tensor([4]), torch.tensor([NO_TASK if task is None else task]))
    competing = method.competing(new.task, torch.tensor([False]), new.y)
    assert set(competing[0].nonzero().flatten().tolist()) == classes


@pytest.mark.parametrize(
    ("setting", "classes"), [("task", {0, 1}), ("class", set(range(6))), ("free", set(range(6))), ("domain", {0, 1})]
)
def test_replayed_samples_are_contrasted_with_their_task_where_it_is_known_at_test_else_with_all(
    setting: Setting, classes: set[int]
) -> None:
    method = method_of(learned(26, setting))
    task = torch.tensor([0 if method.model.seen.learns_by_task else NO_TASK])
    competing = method.competing(task, torch.tensor([True]), torch.tensor([1]))
    assert set(competing[0].nonzero().flatten().tolist()) == classes


def test_in_a_stream_of_shared_classes_new_samples_are_contrasted_with_all() -> None:
    method = method_of(learned(26, "domain", retrieval="uniform"))
    new = Batch(torch.zeros(1, 8), torch.tensor([0]), torch.tensor([2]))
    competing = method.competing(new.task, torch.tensor([False]), new.y)
    assert competing.tolist() == [[True, True]]


def test_without_distillation_the_loss_is_smaller_by_it() -> None:
    with_it, without = learned(distillation=1.0, n_batches=12), learned(distillation=0.0, n_batches=12)
    x, y, task = toy_batches("task")[12]
    # Within the first task nothing is replayed, so both are still the same model, and nothing has drifted.
    assert with_it.observe(x, y, task) == pytest.approx(without.observe(x, y, task))
    x, y, task = toy_batches("task")[13]
    assert with_it.observe(x, y, task) > without.observe(x, y, task)


def test_the_task_margin_rests_while_one_task_was_seen() -> None:
    assert method_of(learned(n_batches=12)).active_task_margin == 0
    assert method_of(learned(n_batches=13)).active_task_margin == 0.1
    for setting in ("domain", "free"):
        assert method_of(learned(n_batches=30, setting=setting)).active_task_margin == 0


def test_distillation_reaches_the_backbone_and_not_the_head() -> None:
    method = method_of(learned())
    old = method.memory[: len(method.memory)]
    method.optimizer.zero_grad()
    from holdfast.losses.distillation import distillation_loss

    distillation_loss(method.model.features(old.x), old.extra["feature"]).backward()
    assert method.model.head.weight.grad is None
    assert all(p.grad is not None for p in method.model.backbone.parameters())


def test_stored_features_are_taken_again_when_their_task_ends_and_then_stay() -> None:
    learner = learned(n_batches=12)
    method = method_of(learner)
    learner.end_task()
    frozen = method.memory.extra("feature").clone()
    torch.testing.assert_close(frozen, method.model.embed(method.memory.x))
    kept = {tuple(x): f for x, f in zip(method.memory.x.tolist(), frozen, strict=True)}
    for x, y, task in toy_batches("task")[12:30]:
        learner.observe(x, y, task)
    first = method.memory[(method.memory.task == 0).nonzero().flatten()]
    assert len(first)
    for x_row, feature in zip(first.x.tolist(), first.extra["feature"], strict=True):
        assert torch.equal(feature, kept[tuple(x_row)])


def test_features_are_stored_as_the_averaged_model_makes_them_if_that_predicts() -> None:
    learner = learned(n_batches=12, average=0.9)
    method = method_of(learner)
    learner.end_task()
    with method.settled():
        expected = method.model.embed(method.memory.x)
    assert torch.equal(method.memory.extra("feature"), expected)
    assert not torch.allclose(expected, method.model.embed(method.memory.x))


def test_a_class_that_a_task_lacks_does_not_hide_which_task_has_ended() -> None:
    learner = learned(n_batches=1, setting="domain")
    x, y, _ = toy_batches("domain")[12]
    for _ in range(3):
        learner.observe(x[y == 0], y[y == 0], 1)  # the first task had class 1 too
    learner.end_task()
    memory = method_of(learner).memory
    second = memory[(memory.task == 1).nonzero().flatten()]
    torch.testing.assert_close(second.extra["feature"], method_of(learner).model.embed(second.x))


def test_centroids_are_of_the_updated_model_in_prediction_mode() -> None:
    learner = learned(n_batches=1)
    method = method_of(learner)
    x, _, _ = toy_batches("task")[0]
    stored = method.memory
    torch.testing.assert_close(stored.extra("feature"), method.model.embed(stored.x))
    assert len(stored) <= len(x)


@pytest.mark.parametrize(
    ("reading", "classifier"),
    [
        (reading, classifier)
        for reading in ("classes", "samples", "centroids")
        for classifier in ("head", "memory", "centroids")
        if (reading, classifier) != ("samples", "head")  # that reading does not train the head
    ],
)
def test_every_reading_learns_with_a_classifier_that_fits_it(reading: str, classifier: str) -> None:
    learner = learned(n_batches=36, reading=reading, classifier=classifier)
    last = Toy()[-1]
    test = last.test[:]
    assert (learner.predict(test.x, last.id) == test.y).double().mean() > 0.9


def test_the_samples_reading_leaves_the_head_alone() -> None:
    learner = learned(n_batches=1, reading="samples")
    before = method_of(learner).model.head.weight.detach().clone()
    for x, y, task in toy_batches("task")[1:5]:
        learner.observe(x, y, task)
    assert torch.equal(method_of(learner).model.head.weight, before)


def test_nearest_means_are_made_anew_after_learning() -> None:
    learner = learned(classifier="memory")
    x, y, task = toy_batches("task")[16]
    before = learner.scores(x, 0)
    assert torch.equal(learner.scores(x, 0), before)
    learner.observe(x, y, task)
    assert not torch.equal(learner.scores(x, 0), before)


def test_means_of_centroids_need_centroids() -> None:
    learner = learned(1, selection="ring", classifier="centroids")
    with pytest.raises(ValueError, match="selection='centroid'"):
        learner.predict(torch.zeros(1, 8), 0)


def test_it_selects_by_centroids_unless_told_otherwise() -> None:
    assert bare("drr").settings.selection.name == "centroid"
    assert bare("drr", selection="ring").settings.selection.name == "ring"
    assert bare("er").settings.selection.name == "reservoir"


def test_it_has_a_cosine_head_unless_told_otherwise() -> None:
    assert method_of(learned(n_batches=1)).model.head.kind == "cosine"
    assert method_of(learned(n_batches=1, head="linear")).model.head.kind == "linear"


@pytest.mark.parametrize("classifier", ["memory", "centroids"])
def test_a_class_announced_between_predictions_is_one_more_that_competes(classifier: str) -> None:
    learner = learned(n_batches=36, classifier=classifier)
    x = toy_batches("task")[-1][0]
    before = learner.scores(x, 2)
    learner.announce([9], task=2)
    after = learner.scores(x, 2)
    assert after.shape[1] == 10
    assert torch.equal(after.argmax(dim=1), before.argmax(dim=1))


@pytest.mark.parametrize("classifier", ["memory", "centroids"])
def test_before_anything_is_stored_a_class_that_competes_is_predicted(classifier: str) -> None:
    learner = bare(
        "drr", setting="task", n_classes=6, input_shape=(8,), classifier=classifier, selection="centroid", memory=30
    )
    learner.announce([2, 3], task=1)
    assert set(learner.predict(torch.zeros(4, 8), 1).tolist()) <= {2, 3}


def test_one_pass_over_new_and_replayed_samples_leads_to_the_same_weights_but_for_rounding():
    twice, once = (bare("drr", passes=passes, memory=20, lr=0.05, seed=1) for passes in (2, 1))
    assert_learn_alike(once, twice, rtol=1e-3, atol=1e-4)
