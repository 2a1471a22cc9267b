from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from holdfast import Learner
from holdfast.core.batch import join
from holdfast.core.model import Model
from holdfast.core.optimizers import make_optimizer
from holdfast.memory.retrieval.uniform import Uniform
from holdfast.memory.selection.reservoir import Reservoir
from holdfast.memory.storage import Memory
from holdfast.methods.er import ER
from holdfast.methods.finetune import Finetune
from tests.support.replaying import assert_learn_alike, assert_recalls_anew
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model


def er(model: Model | None = None, **options: Any) -> ER:
    model = model or small_model()
    parts = {"memory": Memory(20), "selection": Reservoir(), "retrieval": Uniform()}
    return ER(model=model, optimizer=make_optimizer("sgd", model, lr=0.1), **parts, **options)


def gradients(model: Model) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters()]


def gradient_of(model: Model, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


# With batch normalisation the gradient depends on which samples go through together.
both_backbones = pytest.mark.parametrize(
    "last", [nn.Tanh, partial(nn.BatchNorm1d, 4)], ids=["tanh", "batch normalisation"]
)


@both_backbones
def test_equal_weighting_follows_the_sum_of_both_gradients(last: Callable[[], nn.Module]):
    method, same = (er(small_model(last), replay_size=20) for _ in range(2))
    old, new = small_batch(6), small_batch(4, seed=1)
    method.remember(old)
    value = method.observe(new)

    losses = [same.model.loss(batch) for batch in (old, new)]
    expected = [a + b for a, b in zip(*(gradient_of(same.model, loss) for loss in losses), strict=True)]
    torch.testing.assert_close(gradients(method.model), expected)
    assert value == pytest.approx(sum(loss.item() for loss in losses))


@both_backbones
def test_pooled_weighting_follows_the_gradient_of_one_mean(last: Callable[[], nn.Module]):
    method, same = (er(small_model(last), replay_size=20, weighting="pooled") for _ in range(2))
    old, new = small_batch(6), small_batch(4, seed=1)
    method.remember(old)
    value = method.observe(new)

    loss = same.model.loss(join([old, new]))
    torch.testing.assert_close(gradients(method.model), gradient_of(same.model, loss))
    assert value == pytest.approx(loss.item())


def test_pooled_weighting_counts_every_sample_once():
    method, same = (er(replay_size=20, weighting="pooled") for _ in range(2))
    old, new = small_batch(6), small_batch(4, seed=1)
    method.remember(old)
    method.observe(new)
    parts = [gradient_of(same.model, same.model.loss(batch)) for batch in (old, new)]
    expected = [0.6 * a + 0.4 * b for a, b in zip(*parts, strict=True)]
    torch.testing.assert_close(gradients(method.model), expected)


def test_a_weighting_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="weighting"):
        Learner("er", weighting="equla")


@pytest.mark.parametrize("options", [{"replay_size": 0}, {"replay_size": 10}])
def test_without_old_samples_it_is_finetuning(options: dict[str, int]):
    method, model = er(**options), small_model()
    finetune = Finetune(model=model, optimizer=make_optimizer("sgd", model, lr=0.1))
    assert method.observe(small_batch(4)) == finetune.observe(small_batch(4))
    if options["replay_size"] == 0:
        method.observe(small_batch(4, seed=1))
        finetune.observe(small_batch(4, seed=1))
    assert_same(dict(method.model.state_dict()), dict(model.state_dict()))


def test_a_new_batch_is_remembered_after_it_was_learned():
    method = er()
    method.observe(small_batch(4))
    assert torch.equal(method.memory.x, small_batch(4).x)
    assert torch.equal(method.memory.y, small_batch(4).y)


def test_each_step_recalls_anew_and_the_batch_is_remembered_once(monkeypatch: pytest.MonkeyPatch):
    method = er(steps_per_batch=3, replay_size=2)
    assert_recalls_anew(method, monkeypatch)
    assert method.selection.offered == 14
    assert len(method.memory) == 14


def test_one_pass_over_new_and_replayed_samples_leads_to_the_same_weights_but_for_rounding():
    twice, once = (Learner("er", passes=passes, memory=20, lr=0.05, seed=1) for passes in (2, 1))
    assert_learn_alike(once, twice, rtol=1e-4, atol=1e-5)
