"""Algorithm 1 of MER, followed by hand and sample by sample."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from holdfast import Learner
from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.core.optimizers import OptimizerName, make_optimizer
from holdfast.memory.retrieval.uniform import Uniform
from holdfast.memory.selection.reservoir import Reservoir
from holdfast.memory.storage import Memory
from holdfast.methods._base import Diverged
from holdfast.methods.mer import MER
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model


def mer(model: Model | None = None, *, optimizer: OptimizerName = "sgd", lr: float = 0.1, **options: Any) -> MER:
    model = model or small_model()
    parts = {"memory": Memory(20), "selection": Reservoir(), "retrieval": Uniform()}
    return MER(model=model, optimizer=make_optimizer(optimizer, model, lr=lr), **parts, **options)


def linear_model() -> Model:
    """Two numbers to three classes and nothing between, in double precision."""
    model = Model(nn.Identity(), n_features=2, n_classes=3, setting="class").double()
    model.seen.announce(range(3), task=0)
    return model


def linear_batch() -> Batch:
    x = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [0.3, -2.0]], dtype=torch.float64)
    return Batch(x, torch.tensor([0, 2, 1]), torch.zeros(3, dtype=torch.int64))


def recording(method: MER) -> list[Batch]:
    """What the method recalls from now on."""
    recalled: list[Batch] = []
    recall = method.recall
    method.__dict__["recall"] = lambda batch: recalled.append(recall(batch)) or recalled[-1]
    return recalled


def sgd(theta: np.ndarray, x: np.ndarray, y: int, alpha: float) -> tuple[np.ndarray, float]:
    """One step on one sample of softmax regression, the bias in the last column; and the loss before it."""
    scores = theta @ np.append(x, 1.0)
    p = np.exp(scores) / np.exp(scores).sum()
    gradient = np.outer(p - np.eye(len(p))[y], np.append(x, 1.0))
    return theta - alpha * gradient, -np.log(p[y])


def weights(model: Model) -> np.ndarray:
    assert model.head.bias is not None
    return np.column_stack([model.head.weight.detach().numpy(), model.head.bias.detach().numpy()])


def test_both_reptile_steps_are_those_on_paper_sample_by_sample() -> None:
    alpha, beta, gamma, s, k = 0.2, 0.4, 0.7, 3, 2
    method = mer(linear_model(), lr=alpha, n_batches=s, within_batch_rate=beta, across_batch_rate=gamma, replay_size=k)
    theta, batch, recalled = weights(method.model), linear_batch(), recording(method)
    value = method.observe(batch)

    draws = iter(recalled)
    losses = []
    for x, y in zip(batch.x.numpy(), batch.y.tolist(), strict=True):
        theta_A = [theta]
        for _ in range(s):
            old = next(draws)
            theta_W = [theta]
            B = [(x, y), *zip(old.x.numpy(), old.y.tolist(), strict=True)]
            for j, (x_c, y_c) in enumerate(B):
                after, loss = sgd(theta_W[-1], x_c, y_c, alpha)
                theta_W.append(after)
                if j == 0:
                    loss_of_new = loss
            theta = theta_W[0] + beta * (theta_W[-1] - theta_W[0])
            theta_A.append(theta)
        theta = theta_A[0] + gamma * (theta_A[-1] - theta_A[0])
        losses.append(loss_of_new)

    assert [len(old) for old in recalled] == [0, 0, 0, 1, 1, 1, 2, 2, 2]  # a sample is remembered once it is learned
    np.testing.assert_allclose(weights(method.model), theta, rtol=1e-12, atol=1e-14)
    assert value == pytest.approx(np.mean(losses), rel=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_going_all_the_way_is_plain_sequential_learning(optimizer: OptimizerName) -> None:
    method = mer(optimizer=optimizer, n_batches=2, within_batch_rate=1.0, across_batch_rate=1.0, replay_size=3)
    plain = small_model()
    plain_optimizer = make_optimizer(optimizer, plain, lr=0.1)
    recalled, batch = recording(method), small_batch(5)
    method.observe(batch)
    draws = iter(recalled)
    for sample in batch.samples():
        for _ in range(2):
            for one in [sample, *next(draws).samples()]:
                plain_optimizer.zero_grad()
                plain.loss(one).backward()
                plain_optimizer.step()
    assert_same(dict(method.model.state_dict()), dict(plain.state_dict()))
    assert_same(method.optimizer.state_dict(), plain_optimizer.state_dict())


def test_every_batch_is_drawn_anew_and_a_sample_remembered_once() -> None:
    method = mer(n_batches=4, steps_per_batch=2, replay_size=3)
    method.remember(small_batch(12))
    recalled = recording(method)
    method.observe(small_batch(1, seed=1))
    assert [len(old) for old in recalled] == [3] * 8
    assert len({tuple(old.x.flatten().tolist()) for old in recalled}) > 1
    assert method.selection.offered == 13
    assert torch.equal(method.memory.x[12:], small_batch(1, seed=1).x)


def test_several_steps_repeat_the_whole_for_each_sample() -> None:
    several, one = mer(steps_per_batch=3, n_batches=2), mer(n_batches=2)
    for sample in small_batch(4).samples():
        value = several.observe(sample)
        for _ in range(3):
            loss = one.learn(sample)
        one.remember(sample)
        assert value == loss
    assert_same(several.model.state_dict()["head.weight"], one.model.state_dict()["head.weight"])


def test_a_batch_is_learned_like_its_samples_one_after_the_other() -> None:
    together, apart = mer(n_batches=2, replay_size=2), mer(n_batches=2, replay_size=2)
    value = together.observe(small_batch(4))
    assert value == pytest.approx(sum(apart.observe(sample) for sample in small_batch(4).samples()) / 4)
    assert_same(together.state_dict(), apart.state_dict())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_an_old_sample_that_makes_the_loss_no_number_leaves_the_weights_before_the_new_one(bad: float) -> None:
    method = mer(n_batches=2, replay_size=50)
    method.observe(small_batch(3))
    method.memory.x[1] = bad
    before, n_stored = copy.deepcopy(method.model.state_dict()), len(method.memory)
    steps = 0

    def counted(loss: torch.Tensor) -> float:
        nonlocal steps
        value = MER.step(method, loss)
        steps += 1
        return value

    method.__dict__["step"] = counted
    with pytest.raises(Diverged):
        method.observe(small_batch(2, seed=1))
    assert steps > 0  # the new sample had moved the weights
    assert_same(dict(method.model.state_dict()), dict(before))
    assert len(method.memory) == n_stored


def test_weights_that_are_no_numbers_any_more_are_put_back_too() -> None:
    method = mer(n_batches=2, replay_size=50, lr=0.1)
    method.observe(small_batch(3))
    before = copy.deepcopy(method.model.state_dict())
    method.optimizer.param_groups[0]["lr"] = torch.inf
    with pytest.raises(Diverged):
        method.observe(small_batch(1, seed=1))
    assert_same(dict(method.model.state_dict()), dict(before))


def test_it_learns_images_one_by_one_through_batch_normalisation() -> None:
    learner = Learner(
        "mer", backbone={"name": "reduced_resnet18", "width": 2}, memory=10, lr=0.05, replay_size=1, n_classes=2
    )
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(3, 3, 8, 8, generator=rng), torch.tensor([0, 1, 0])
    for _ in range(2):
        assert np.isfinite(learner.observe(x, y))
    assert learner.scores(x).isfinite().all()


def images_learned(precision: str = "float32", width: int = 8) -> tuple[Learner, torch.Tensor]:
    """A learner of MER that has seen a few images, and others to predict."""
    backbone = {"name": "reduced_resnet18", "width": width, "precision": precision}
    learner = Learner("mer", backbone=backbone, memory=10, lr=0.05, replay_size=2, n_classes=3)
    rng = torch.Generator().manual_seed(0)
    for _ in range(3):
        learner.observe(torch.rand(4, 3, 16, 16, generator=rng), torch.randint(3, (4,), generator=rng))
    return learner, torch.rand(5, 3, 16, 16, generator=rng)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 3e-2)])
def test_each_sample_is_predicted_as_it_is_learned_in_a_batch_of_its_own(precision: str, tolerance: float) -> None:
    learner, x = images_learned(precision)
    slow = copy.deepcopy(learner.method.model)  # in training mode: its running averages change, so it is a copy
    with torch.no_grad():
        expected = torch.cat([slow.features(one[None]) for one in x])
        torch.testing.assert_close(learner.features(x), expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(learner.scores(x), slow.head(expected), rtol=tolerance, atol=tolerance)
    with_running_averages = slow.eval().features(x)
    assert (with_running_averages - expected).abs().max() > 10 * tolerance


def test_a_prediction_depends_on_no_other_sample_and_changes_nothing() -> None:
    learner, x = images_learned()
    before = copy.deepcopy(dict(learner.method.model.state_dict()))
    together = learner.scores(x)
    for i in range(len(x)):
        torch.testing.assert_close(learner.scores(x[i : i + 1]), together[i : i + 1])
    assert_same(dict(learner.method.model.state_dict()), before)
    assert not any(module._forward_hooks for module in learner.method.model.modules())


def test_a_frozen_backbone_predicts_as_it_learns_with_its_running_averages() -> None:
    backbone = {"name": "reduced_resnet18", "width": 8, "frozen": True}
    mer, er = (Learner(name, backbone=backbone, n_classes=2) for name in ("mer", "er"))
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    for learner in (mer, er):
        learner.observe(x, [0, 1])
    assert torch.equal(mer.features(x), er.features(x))
