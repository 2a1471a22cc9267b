"""Supervised contrastive replay: what one step learns from, what is saved, and how it predicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import NearestCentroid
from torch import Tensor, nn

from holdfast import Learner, load_learner
from holdfast.core.augment import contrastive_views
from holdfast.core.batch import Batch
from holdfast.core.classes import SETTINGS, Setting
from holdfast.core.model import Model
from holdfast.core.optimizers import make_optimizer
from holdfast.memory.retrieval.uniform import Uniform
from holdfast.memory.selection.reservoir import Reservoir
from holdfast.memory.storage import Memory
from holdfast.methods import scr as scr_file
from holdfast.methods._base import Diverged
from holdfast.methods.scr import SCR
from tests.support.replaying import assert_recalls_anew
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model
from tests.support.toy import Toy, shown, toy_batches


def scr(model: Model | None = None, **options: Any) -> SCR:
    model = model or small_model()
    parts = {"memory": Memory(20), "selection": Reservoir(), "retrieval": Uniform()}
    return SCR(model=model, optimizer=make_optimizer("sgd", model, lr=0.1), **parts, **options)


def learned(n_batches: int = 30, setting: Setting = "class", **options: Any) -> Learner:
    """A learner that has seen some batches of the toy stream, which has twelve a task."""
    backbone = {"name": "mlp", "hidden": [16]}
    learner = Learner("scr", setting=setting, **{"memory": 30, "lr": 0.05, "backbone": backbone} | options)
    return shown(learner, n_batches)


def method_of(learner: Learner) -> SCR:
    assert isinstance(learner.method, SCR)
    return learner.method


def parameters(method: SCR) -> list[Tensor]:
    return [*method.model.backbone.parameters(), *method.projector.parameters()]


def slow_contrast(z: Tensor, y: list[int], tau: float) -> Tensor:
    """SupCon, one anchor and one positive at a time; every anchor has one."""
    z = z / z.norm(dim=1, keepdim=True)
    rows = []
    for i in range(len(y)):
        others = [a for a in range(len(y)) if a != i]
        denominator = sum(torch.exp(z[i] @ z[a] / tau) for a in others)
        positives = [p for p in others if y[p] == y[i]]
        rows.append(-sum(torch.log(torch.exp(z[i] @ z[p] / tau) / denominator) for p in positives) / len(positives))
    return sum(rows) / len(rows)


# With batch normalisation the gradient depends on which samples go through together.
@pytest.mark.parametrize("last", [nn.Tanh, partial(nn.BatchNorm1d, 4)], ids=["tanh", "batch normalisation"])
@pytest.mark.parametrize("projection", [5, None])
def test_a_step_follows_the_loss_on_old_and_new_samples_and_a_view_of_each(
    last: Callable[[], nn.Module], projection: int | None
) -> None:
    method, same = (scr(small_model(last), projection=projection, temperature=0.5) for _ in range(2))
    old, new = small_batch(6), small_batch(4, seed=1)
    for each in (method, same):
        each.remember(old)
    value = method.observe(new)

    recalled = same.recall(new)  # all of them, shuffled by the same random numbers
    assert sorted(recalled.x.tolist()) == sorted(old.x.tolist())
    x = torch.cat([recalled.x, new.x])
    views = contrastive_views(x, same.rng)

    def project(features: Tensor) -> Tensor:
        if projection is None:
            return features
        first, _, second = same.projector
        return F.relu(features @ first.weight.T + first.bias) @ second.weight.T + second.bias

    z = torch.cat([project(same.model.backbone(x)), project(same.model.backbone(views))])
    loss = slow_contrast(z, 2 * [*recalled.y.tolist(), *new.y.tolist()], tau=0.5)
    assert value == pytest.approx(loss.item(), rel=1e-5)
    gradients = torch.autograd.grad(loss, parameters(same))
    expected = [p - 0.1 * g for p, g in zip(parameters(same), gradients, strict=True)]
    torch.testing.assert_close(parameters(method), expected)


def test_without_memory_it_contrasts_the_new_batch_with_its_views() -> None:
    method, same = (scr(temperature=0.5, projection=None) for _ in range(2))
    new = small_batch(5)
    views = contrastive_views(new.x, same.rng)
    z = same.model.backbone(torch.cat([new.x, views]))
    assert method.observe(new) == pytest.approx(slow_contrast(z, 2 * new.y.tolist(), tau=0.5).item(), rel=1e-5)


def test_the_head_is_not_learned() -> None:
    method = scr()
    before = [parameter.detach().clone() for parameter in method.model.head.parameters()]
    method.observe(small_batch(6))
    assert all(torch.equal(a, b) for a, b in zip(before, method.model.head.parameters(), strict=True))


def test_each_step_recalls_and_views_anew_and_the_batch_is_remembered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    method, rng = scr(steps_per_batch=3, replay_size=2), scr().rng
    assert_recalls_anew(method, monkeypatch)
    for _ in range(3):
        contrastive_views(torch.zeros(6, 3), rng)
    assert torch.equal(method.rng.get_state(), rng.get_state())
    assert method.selection.offered == 14
    assert len(method.memory) == 14


def test_a_loss_that_is_no_number_leaves_all_weights_alone() -> None:
    method = scr()
    before = [parameter.detach().clone() for parameter in parameters(method)]
    batch = small_batch(4)
    batch.x[0] = math.nan
    with pytest.raises(Diverged):
        method.observe(batch)
    assert all(torch.equal(a, b) for a, b in zip(before, parameters(method), strict=True))


def test_the_projections_first_weights_depend_on_the_models_seed_and_on_nothing_else() -> None:
    def first_weights(seed: int) -> list[Tensor]:
        model = Model(nn.Identity(), n_features=16, n_classes=3, setting="class", seed=seed)
        return [parameter.detach() for parameter in scr(model).projector.parameters()]

    torch.manual_seed(1)
    state = torch.get_rng_state()
    weights = first_weights(7)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert all(torch.equal(a, b) for a, b in zip(weights, first_weights(7), strict=True))
    assert not torch.equal(weights[0], first_weights(8)[0])
    assert [tuple(weight.shape) for weight in weights] == [(16, 16), (16,), (128, 16), (128,)]
    for weight in weights:  # uniform within the bounds of a linear layer of 16 inputs
        assert weight.abs().max() <= 0.25
        assert weight.abs().max() > 0.2
    assert weights[2].mean() == pytest.approx(0, abs=0.02)
    assert weights[2].std() == pytest.approx(0.25 / math.sqrt(3), rel=0.05)


def test_building_it_leaves_the_models_and_the_memorys_random_numbers_alone() -> None:
    model = small_model()
    before = model.head.rng.get_state()
    method = scr(model)
    assert torch.equal(model.head.rng.get_state(), before)
    assert torch.equal(method.memory.rng.get_state(), Memory(20).rng.get_state())


def test_the_projection_follows_the_models_precision() -> None:
    method = scr(small_model().double())
    assert all(parameter.dtype == torch.float64 for parameter in method.projector.parameters())


def test_the_projection_is_learned_and_saved() -> None:
    learner = learned(n_batches=3)
    saved = learner.state_dict()["method"]["projector"]
    fresh = Learner("scr", setting="class", backbone={"name": "mlp", "hidden": [16]}, input_shape=(8,))
    assert list(saved) == list(method_of(fresh).projector.state_dict()) != []
    for name, parameter in method_of(fresh).projector.state_dict().items():
        assert not torch.equal(saved[name], parameter)


@pytest.mark.parametrize("options", [{"optimizer": "adam"}, {"momentum": 0.9}, {"projection": None}])
def test_a_saved_learner_goes_on_to_the_same_bits(options: dict[str, Any], tmp_path: Path) -> None:
    never_saved, learner = learned(n_batches=0, **options), learned(n_batches=0, **options)
    for i, (x, y, task) in enumerate(toy_batches("class")):
        never_saved.observe(x, y, task)
        learner.observe(x, y, task)
        if i in (0, 7, 13):
            learner.predict(x)
            learner.save(tmp_path / "learner")
            learner = load_learner(tmp_path / "learner")
    assert_same(learner.state_dict(), never_saved.state_dict())
    x, _, _ = toy_batches("class")[0]
    assert torch.equal(learner.scores(x), never_saved.scores(x))


def test_it_predicts_as_scikit_learns_nearest_centroid_of_normalised_features() -> None:
    learner = learned(memory=300)
    method = method_of(learner)
    test = Toy()[1].test[:]
    noisy = test.x + 4 * torch.randn(test.x.shape, generator=torch.Generator().manual_seed(0))
    unit, new_unit = (F.normalize(learner.features(x), dim=1).numpy() for x in (method.memory.x, noisy))
    oracle = NearestCentroid().fit(unit, method.memory.y.numpy())
    # The authors bring the means to length one too.
    oracle.centroids_ = F.normalize(torch.from_numpy(oracle.centroids_), dim=1).numpy()
    expected = oracle.predict(new_unit).tolist()
    assert len(set(expected)) == 6
    assert learner.predict(noisy).tolist() == expected


def test_where_tasks_share_classes_the_nearest_mean_of_any_task_tells_the_class() -> None:
    learner = learned(setting="domain")
    memory = method_of(learner).memory
    x = torch.cat([task.test[:].x for task in Toy(shared=True)])
    noisy = x + 4 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    unit, new_unit = (F.normalize(learner.features(rows), dim=1) for rows in (memory.x, noisy))
    keys = sorted({(t, c) for t, c in zip(memory.task.tolist(), memory.y.tolist(), strict=True)})
    assert len(keys) > 2
    means = torch.stack([F.normalize(unit[(memory.task == t) & (memory.y == c)].mean(dim=0), dim=0) for t, c in keys])
    expected = [keys[int((means - row).norm(dim=1).argmin())][1] for row in new_unit]
    assert learner.predict(noisy).tolist() == expected


def test_only_classes_of_the_task_compete_where_it_is_known() -> None:
    learner = learned(setting="task")
    x = Toy()[0].test[:].x
    for task in range(3):
        assert set(learner.predict(x, task).tolist()) <= {2 * task, 2 * task + 1}
        assert torch.equal(learner.scores(x, task).isfinite().sum(dim=1), torch.full((len(x),), 2))


def test_a_class_that_is_not_stored_is_not_predicted_while_another_is() -> None:
    method = scr()
    batch = small_batch(12)
    method.memory.fit(batch)
    method.memory.add(batch[batch.y == 1])
    assert set(method.scores(small_batch(20, seed=3).x, torch.zeros(20)).argmax(dim=1).tolist()) == {1}


def test_with_nothing_stored_a_class_that_competes_is_predicted() -> None:
    learner = Learner("scr", setting="task", input_shape=(8,), backbone={"name": "mlp", "hidden": [16]})
    learner.announce([3, 4], task=0)
    assert set(learner.predict(torch.ones(2, 8), 0).tolist()) <= {3, 4}
    x, y, _ = toy_batches("task")[0]
    learner.observe(x, y, 1)
    assert set(learner.predict(x, 0).tolist()) <= {3, 4}  # although only others are stored
    assert set(learner.predict(x, 1).tolist()) <= {0, 1}


def test_means_are_kept_between_batches_and_made_anew_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learned(n_batches=13)
    n_made: list[int] = []
    made = scr_file.stored_means
    monkeypatch.setattr(scr_file, "stored_means", lambda *given: n_made.append(1) or made(*given))
    x, y, task = toy_batches("class")[13]
    before = learner.scores(x)
    assert torch.equal(learner.scores(x), before)
    assert len(n_made) == 1
    learner.observe(x, y, task)
    assert not torch.equal(learner.scores(x), before)
    assert len(n_made) == 2


def test_it_predicts_after_the_head_has_grown_between_batches() -> None:
    learner = learned(n_batches=13)
    x, _, _ = toy_batches("class")[0]
    before = learner.predict(x)
    learner.announce([9], task=2)
    assert learner.scores(x).shape == (len(x), 10)
    assert torch.equal(learner.predict(x), before)


@pytest.mark.parametrize("setting", SETTINGS)
def test_images_are_viewed_as_bytes_and_stay_bytes_in_memory(setting: Setting) -> None:
    learner = Learner("scr", setting=setting, backbone={"name": "reduced_resnet18", "width": 4}, memory=8)
    generator = torch.Generator().manual_seed(0)
    for n in (1, 3, 2):  # also one image alone, which has no batch statistics
        x = torch.randint(256, (n, 3, 9, 8), generator=generator, dtype=torch.uint8)
        loss = learner.observe(x, torch.arange(n), None if setting == "free" else 0)
        assert 0 <= loss < math.inf
    assert learner.memory is not None
    assert learner.memory.x.dtype == torch.uint8
    assert learner.predict(x, 0 if setting == "task" else None).shape == (2,)


def test_samples_of_one_class_attract_each_other_across_tasks_that_share_it() -> None:
    method, same = (scr(projection=None) for _ in range(2))
    one = small_batch(6)
    mixed = Batch(one.x, one.y, torch.tensor([0, 1, 0, 1, 0, 1]))
    assert method.observe(mixed) == same.observe(one)


def test_it_cautions_against_choosing_by_gradients_of_a_head_that_is_not_learned():
    assert "head" in (Learner("scr", input_shape=(3,), selection="gradient_diversity").method.caution() or "")
    assert Learner("scr", input_shape=(3,), selection="reservoir").method.caution() is None
