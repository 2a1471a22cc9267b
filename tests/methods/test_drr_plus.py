"""What `drr_plus` adds to Algorithm 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from holdfast import Learner, load_learner
from holdfast.core.batch import Batch
from holdfast.core.classes import Setting
from holdfast.losses.contrastive_margin import paired_margin_loss
from holdfast.methods.drr_plus import DRRPlus
from tests.support.bare import bare
from tests.support.same import assert_same
from tests.support.slow_cml import slow_cml
from tests.support.toy import shown, toy_batches


def learned(n_batches: int = 16, setting: Setting = "task", method: str = "drr_plus", **options: Any) -> Learner:
    """A learner that has seen some batches of the toy stream, which has twelve a task."""
    settings: dict[str, Any] = {"selection": {"name": "centroid", "epsilon": 2.0}, "retrieval": "old_tasks"}
    learner = bare(
        method, setting=setting, memory=30, lr=0.05, backbone={"name": "mlp", "hidden": [16]}, **settings | options
    )
    return shown(learner, n_batches)


def method_of(learner: Learner) -> DRRPlus:
    assert isinstance(learner.method, DRRPlus)
    return learner.method


@pytest.mark.parametrize("setting", ["task", "class", "domain", "free"])
def test_with_its_defaults_it_is_drr(setting: Setting) -> None:
    plus, plain = learned(30, setting), learned(30, setting, "drr")
    assert_same(dict(plus.method.model.state_dict()), dict(plain.method.model.state_dict()))
    x, _, task = toy_batches(setting)[29]
    assert torch.equal(
        plus.scores(x, task if setting == "task" else None), plain.scores(x, task if setting == "task" else None)
    )


def test_the_reading_between_samples_can_be_added_to_another() -> None:
    learner = learned(between_samples=True, logit_scale=8.0, class_margin=0.05, task_margin=0.2, distillation=0.0)
    method = method_of(learner)
    x, y, task = toy_batches("task")[16]
    batch = Batch(x, y, torch.full_like(y, task or 0))
    method.replay_size = 1000
    old = method.recall(batch)
    expected = slow_cml(method, batch, lambda _: {2, 3}, 8.0, 0.05, 0.2)
    expected += slow_cml(method, old, lambda _: {0, 1}, 8.0, 0.05, 0.2)
    features = method.model.features(torch.cat([old.x, batch.x])).detach()
    of_all = torch.cat([old.y, y]), torch.cat([old.task, batch.task])
    is_old = torch.arange(len(features)) < len(old)
    margins = {"scale": 8.0, "class_margin": 0.05, "task_margin": 0.2}
    for anchors in (is_old, ~is_old):
        expected += float(paired_margin_loss(features, *of_all, is_anchor=anchors, **margins))
    assert learner.observe(x, y, task) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("average", [None, 0.9])
def test_scores_can_be_held_as_the_model_at_the_end_of_the_last_task_has_them(average: float | None) -> None:
    options = {"distillation": 0.0, "average": average, "class_margin": 0.05, "task_margin": 0.2, "old_against": "seen"}
    selection = {"name": "centroid", "epsilon": 2.0, "per_class": 5}  # what is old stays when classes come
    learner = learned(24, score_distillation=3.0, selection=selection, **options)  # two tasks
    learner.announce([4, 5], 2)  # of which nothing is known yet that could be held
    learner.end_task()
    method = method_of(learner)
    x, y, task = toy_batches("task")[28]  # of the third task, as the four before it
    batch = Batch(x, y, torch.full_like(y, task or 0))
    method.replay_size = 1000
    old = method.recall(batch)
    unit_rows = F.normalize(method.model.head.weight.detach(), dim=1)
    with method.settled():
        rows = F.normalize(method.model.head.weight.detach(), dim=1)
    then = [10.0 * F.normalize(learner.features(part.x), dim=1) @ rows.T for part in (old, batch)]
    assert (average is None) == torch.equal(rows, unit_rows)
    method.replay_size = 10
    for step in range(24, 28):
        learner.observe(*toy_batches("task")[step])
    method.replay_size = 1000
    assert len(method.recall(batch)) == len(old) == 20
    expected = slow_cml(method, batch, lambda _: {4, 5}, 10.0, 0.05, 0.2)
    expected += slow_cml(method, old, lambda _: set(range(6)), 10.0, 0.05, 0.2)
    held = 0.0
    for part, scores in zip((old, batch), then, strict=True):
        now = 10.0 * method.model.head.cosines(method.model.features(part.x)).detach()
        for classes in ([0, 1], [2, 3]):  # of the two tasks that were over
            p, q = ((s[:, classes] / 2).log_softmax(1) for s in (now, scores))
            held += 2**2 * float((q.exp() * (q - p)).sum(dim=1).mean()) / 2
    assert held > 0.01
    assert learner.observe(x, y, task) == pytest.approx(expected + 3.0 * held, rel=1e-4)


def test_where_no_task_ends_nothing_is_held_and_it_says_so() -> None:
    plain, holding = learned(26, "free"), learned(26, "free", score_distillation=3.0)
    assert_same(dict(plain.method.model.state_dict()), dict(holding.method.model.state_dict()))
    assert plain.method.caution() is None
    assert holding.method.caution() == "in the setting 'free' no task is known to end, so score_distillation rests"
    assert learned(1, score_distillation=3.0).method.caution() is None


def test_the_model_at_the_end_of_the_last_task_is_saved_too(tmp_path: Path) -> None:
    learner = learned(16, score_distillation=3.0)
    learner.save(tmp_path / "learner")
    again = load_learner(tmp_path / "learner")
    for step in range(16, 28):  # into the third task
        batch = toy_batches("task")[step]
        assert again.observe(*batch) == learner.observe(*batch)


def test_new_images_are_learned_beside_their_mirror_images_and_stored_alone() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randint(256, (10, 3, 8, 8), generator=rng, dtype=torch.uint8), torch.arange(10) % 4
    options = {"backbone": {"name": "reduced_resnet18", "width": 8}, "memory": 100, "lr": 0.01, "seed": 0}
    by_hand, mirroring = bare("drr_plus", **options), bare("drr_plus", mirror=True, **options)
    twice = torch.cat([x, x.flip(3)]), torch.cat([y, y])
    assert mirroring.observe(x, y) == by_hand.observe(*twice)
    assert_same(dict(mirroring.method.model.state_dict()), dict(by_hand.method.model.state_dict()))
    stored = mirroring.memory
    assert stored is not None
    assert {tuple(row.tolist()) for row in stored.x.flatten(1)} <= {tuple(row.tolist()) for row in x.flatten(1)}


def test_what_is_no_image_has_no_mirror_image() -> None:
    x, y = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"inputs of shape \(3,\) are no images: use mirror=False"):
        bare("drr_plus", mirror=True).observe(x, y)
    learner = bare("drr_plus", mirror_scores=True)
    learner.observe(x, y)
    with pytest.raises(ValueError, match=r"inputs of shape \(3,\) are no images: use mirror_scores=False"):
        learner.predict(x)


@pytest.mark.parametrize("classifier", ["head", "memory"])
def test_scores_can_be_of_an_image_and_its_mirror_image(classifier: str) -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randint(256, (10, 3, 8, 8), generator=rng, dtype=torch.uint8), torch.arange(10) % 4
    options = {"backbone": {"name": "reduced_resnet18", "width": 8}, "memory": 100, "lr": 0.01, "seed": 0}
    plain, both = (bare("drr_plus", classifier=classifier, mirror_scores=m, **options) for m in (False, True))
    for learner in (plain, both):
        learner.observe(x, y)
    unit = F.normalize(plain.features(x) + plain.features(x.flip(3)), dim=1)
    rows = plain.method.model.head.weight if classifier == "head" else plain.method.class_means()
    torch.testing.assert_close(both.scores(x), unit @ F.normalize(rows, dim=1).detach().T)
    torch.testing.assert_close(both.scores(x), both.scores(x.flip(3)))
    assert not torch.equal(both.scores(x), plain.scores(x))


def test_augmented_replay_learns_other_pictures_and_stores_them_as_they_came() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randint(256, (40, 3, 8, 8), generator=rng, dtype=torch.uint8), torch.arange(40) % 4
    plain, augmented = (
        bare("drr_plus", backbone={"name": "reduced_resnet18", "width": 8}, memory=100, lr=0.01, augment=augment)
        for augment in (False, True)
    )
    for i in range(0, 40, 10):
        losses = [learner.observe(x[i : i + 10], y[i : i + 10]) for learner in (plain, augmented)]
        assert (losses[0] == losses[1]) == (i == 0)  # nothing is replayed beside the first batch
    stored = augmented.memory
    assert stored is not None
    assert {tuple(row.tolist()) for row in stored.x.flatten(1)} <= {tuple(row.tolist()) for row in x.flatten(1)}
