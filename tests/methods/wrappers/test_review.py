from __future__ import annotations

import copy

import pytest
import torch

from holdfast import Learner
from holdfast.core.model import predicting
from holdfast.methods.wrappers.review import SEED
from holdfast.parts import Unknown
from tests.support.same import assert_same
from tests.support.toy import shown, toy_batches


def learned(method: str, **options: object) -> Learner:
    learner = Learner(method, setting="class", memory=30, lr=0.05, backbone={"name": "mlp", "hidden": [8]}, **options)
    return shown(learner, 20)


def test_it_predicts_with_weights_that_learned_memory_once_more() -> None:
    learner = learned("er+review", epochs=2, share=0.5, replay_size=7)
    memory = learner.memory
    assert memory is not None
    x = toy_batches("class")[0][0]
    model = copy.deepcopy(learner.method.model)
    rng = torch.Generator().manual_seed(memory.rng.initial_seed() ^ SEED)
    for _ in range(2):
        order = torch.randperm(30, generator=rng)
        for start in range(0, 30, 7):
            model.zero_grad()
            model.loss(memory[order[start : start + 7]]).backward()
            for weight in model.parameters():
                assert weight.grad is not None
                weight.data -= 0.5 * 0.05 * weight.grad
    with predicting(model):
        expected = model.masked(model(x), torch.zeros(len(x), dtype=torch.int64))
    torch.testing.assert_close(learner.scores(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_predicting_changes_nothing_that_learns(optimizer: str) -> None:
    asked, other = learned("drr+review", optimizer=optimizer), learned("drr+review", optimizer=optimizer)
    for x, y, task in toy_batches("class")[20:]:
        asked.predict(x)
        asked.observe(x, y, task)
        other.observe(x, y, task)
    asked.predict(x)
    assert_same(asked.state_dict(), other.state_dict())


def test_it_learns_as_the_method_does() -> None:
    assert_same(learned("er+review").method.model.state_dict(), learned("er").method.model.state_dict())


def test_batch_statistics_and_their_counts_stay() -> None:
    learner = Learner("er+review", setting="class", backbone="reduced_resnet18", input_shape=(3, 8, 8), n_classes=2)
    x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    learner.observe(x, torch.tensor([0, 1, 0, 1]), 0)
    before = copy.deepcopy(learner.method.model.state_dict())
    learner.predict(x)
    assert_same(learner.method.model.state_dict(), before)


def test_a_method_that_does_not_learn_the_head_is_refused() -> None:
    with pytest.raises(Unknown, match="does not learn the head"):
        Learner("scr+review", input_shape=(2,))
