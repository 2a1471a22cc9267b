from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holdfast import Learner, load_learner
from holdfast.core.average import WeightAverage
from tests.support.same import assert_same
from tests.support.small import small_model
from tests.support.toy import toy_batches


def test_the_average_is_the_exponential_one_with_a_warm_up():
    model, average = small_model(), WeightAverage(0.8)
    expected = None
    for n in range(1, 60):
        with torch.no_grad():
            model.head.bias.fill_(float(n))
        average.update(model)
        decay = min(0.8, n / (n + 9))
        expected = float(n) if expected is None else decay * expected + (1 - decay) * n
    with average.inside(model):
        torch.testing.assert_close(model.head.bias.detach(), torch.full((3,), expected))
    assert expected == pytest.approx(59 - 0.8 / 0.2, abs=0.01)  # it lags by decay / (1 - decay) steps


def test_the_weights_of_the_model_are_its_own_again_afterwards():
    model, average = small_model(), WeightAverage(0.9)
    average.update(model)
    with torch.no_grad():
        model.head.weight.add_(1)
    average.update(model)
    own = model.head.weight.detach().clone()
    with average.inside(model):
        assert not torch.equal(model.head.weight, own)
    assert torch.equal(model.head.weight, own)


def test_rows_that_the_head_has_grown_enter_as_they_are():
    model, average = small_model(), WeightAverage(0.5)
    average.update(model)
    model.grow(5)
    grown = model.head.weight.detach().clone()
    before = [tensor.clone() for tensor in average.tensors]
    with average.inside(model):
        assert torch.equal(model.head.weight.detach()[3:], grown[3:])
        assert torch.equal(model.head.weight.detach()[:3], average.tensors[2])
    assert_same(average.tensors, before)  # to predict changes nothing
    average.update(model)
    assert torch.equal(average.tensors[2][3:], model.head.weight.detach()[3:])


@pytest.mark.parametrize("method", ["finetune", "er", "der"])
def test_a_learner_predicts_with_the_average_and_learns_with_its_weights(method: str):
    plain, averaged = Learner(method, seed=3), Learner(method, seed=3, average=0.9)
    for x, y, _ in toy_batches("free")[:10]:
        assert plain.observe(x, y) == averaged.observe(x, y)
    assert_same(dict(plain.method.model.state_dict()), dict(averaged.method.model.state_dict()))
    x = toy_batches("free")[0][0]
    assert not torch.equal(plain.scores(x), averaged.scores(x))
    assert not torch.equal(plain.features(x), averaged.features(x))
    with averaged.method.settled():
        assert torch.equal(averaged.method.model.embed(x), averaged.features(x))


def test_a_saved_average_of_convolutions_predicts_the_same_bits(tmp_path: Path):
    learner = Learner("er", backbone={"name": "reduced_resnet18", "width": 8}, average=0.9, memory=10, lr=0.01)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(12, 3, 8, 8, generator=generator)
    y = torch.randint(3, (12,), generator=generator)
    for i in range(0, 12, 4):
        learner.observe(x[i : i + 4], y[i : i + 4])
    learner.save(tmp_path / "learner")
    again = load_learner(tmp_path / "learner")
    assert torch.equal(again.scores(x), learner.scores(x))
    for one in (learner, again):
        one.observe(x, y)
    assert torch.equal(again.scores(x), learner.scores(x))
