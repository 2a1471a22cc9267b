from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from holdfast.core.batch import Batch
from holdfast.core.optimizers import make_optimizer
from holdfast.memory.retrieval.uniform import Uniform
from holdfast.memory.selection.reservoir import Reservoir
from holdfast.memory.storage import Memory
from holdfast.methods._base import Diverged
from holdfast.methods.er import ER
from holdfast.methods.finetune import Finetune
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model


def er(**options: Any) -> ER:
    model = small_model()
    return ER(
        model=model,
        optimizer=make_optimizer("sgd", model, lr=0.1, momentum=0.9),
        memory=Memory(20),
        selection=Reservoir(),
        retrieval=Uniform(),
        **options,
    )


# A loss that is no number.


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_loss_that_is_no_number_raises_and_leaves_everything_as_it_was(value: float):
    method = er()
    method.observe(small_batch(4))
    before = copy.deepcopy(method.state_dict())
    with pytest.raises(
        Diverged, match=f"the loss is {value}: the weights were left as they are; lower the learning rate"
    ):
        method.step(method.model.loss(small_batch(4)) * value)
    assert_same(method.state_dict(), before)


def test_a_batch_that_makes_the_loss_no_number_is_not_remembered():
    method = er()
    method.observe(small_batch(4))
    n_stored, weights = len(method.memory), copy.deepcopy(method.model.state_dict())
    with torch.no_grad():
        bad = small_batch(4)
        bad.x.fill_(torch.nan)
    with pytest.raises(Diverged):
        method.observe(bad)
    assert len(method.memory) == n_stored
    assert_same(dict(method.model.state_dict()), dict(weights))


def test_after_a_loss_that_is_no_number_learning_goes_on():
    method, untouched = er(), er()
    for each in (method, untouched):
        each.observe(small_batch(4))
    with pytest.raises(Diverged):
        method.step(method.model.loss(small_batch(4)) * torch.nan)
    for each in (method, untouched):
        each.observe(small_batch(4, seed=1))
    assert_same(method.state_dict(), untouched.state_dict())


# Recalling and remembering.


def test_an_empty_memory_recalls_nothing():
    batch = small_batch(3)
    old = er().recall(batch)
    assert len(old) == 0
    assert old.x.shape == (0, 3)


def test_what_was_remembered_is_recalled_with_what_stood_beside_it():
    method, batch = er(replay_size=50), small_batch(6)
    method.remember(batch.with_extra(total=batch.x.sum(dim=1)))
    old = method.recall(small_batch(2, seed=1))
    assert sorted(old.extra["total"].tolist()) == sorted(batch.x.sum(dim=1).tolist())
    assert torch.equal(old.extra["total"], old.x.sum(dim=1))


@pytest.mark.parametrize(("replay_size", "expected"), [(0, 0), (4, 4), (50, 6)])
def test_as_many_are_recalled_as_asked_for_and_stored(replay_size: int, expected: int):
    method = er(replay_size=replay_size)
    method.remember(small_batch(6))
    assert len(method.recall(small_batch(2, seed=1))) == expected


# Scores and growth.


def test_scoring_changes_nothing():
    method = er()
    method.observe(small_batch(4))
    before = copy.deepcopy(method.state_dict())
    scores = method.scores(small_batch(5).x, small_batch(5).task)
    assert scores.shape == (5, 3)
    assert not scores.requires_grad
    assert_same(method.state_dict(), before)


def test_a_method_that_has_grown_goes_on_learning():
    model = small_model()
    method = Finetune(model=model, optimizer=make_optimizer("adam", model, lr=0.1))
    method.observe(small_batch(4))
    method.grow(5)
    method.model.seen.announce([4], task=1)
    loss = [method.observe(Batch(torch.ones(1, 3), torch.tensor([4]), torch.tensor([1]))) for _ in range(20)]
    assert loss[-1] < loss[0]
    assert method.scores(torch.ones(1, 3), torch.tensor([1])).argmax() == 4
