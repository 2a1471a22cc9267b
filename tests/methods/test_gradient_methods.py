"""What holds for every method that combines the gradient of a new batch with that of old samples."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from holdfast.core.batch import Batch
from holdfast.core.optimizers import make_optimizer
from holdfast.methods._base import Diverged, ReplayMethod
from holdfast.methods.agem import AGEM
from holdfast.methods.finetune import Finetune
from holdfast.methods.gem import GEM
from holdfast.methods.mega1 import MEGA1
from holdfast.methods.mega2 import MEGA2
from holdfast.methods.soft_gem import SoftGEM
from tests.support.by_hand import built, opposed, weights
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model

each = pytest.mark.parametrize("kind", [AGEM, GEM, MEGA1, MEGA2, SoftGEM])


@each
@pytest.mark.parametrize("options", [{}, {"replay_size": 0}, {"steps_per_batch": 3}])
def test_without_old_samples_it_is_finetuning(kind: type[ReplayMethod], options: dict[str, int]):
    method, model = built(kind, small_model(), **options), small_model()
    finetune = Finetune(
        model=model,
        optimizer=make_optimizer("sgd", model, lr=0.1),
        steps_per_batch=options.get("steps_per_batch", 1),
    )
    assert method.observe(small_batch(4)) == finetune.observe(small_batch(4))
    if options.get("replay_size") == 0:
        assert method.observe(small_batch(4, seed=1, task=1)) == finetune.observe(small_batch(4, seed=1, task=1))
    assert_same(dict(method.model.state_dict()), dict(model.state_dict()))


@each
def test_with_old_samples_it_is_not(kind: type[ReplayMethod]):
    method, model = built(kind, small_model()), small_model()
    method.remember(opposed(small_batch(4, task=1)))
    finetune = Finetune(model=model, optimizer=make_optimizer("sgd", model, lr=0.1))
    method.observe(small_batch(4))
    finetune.observe(small_batch(4))
    assert not torch.allclose(weights(method.model), weights(model))


@each
def test_the_loss_that_it_gives_is_that_of_the_new_batch_before_the_last_step(kind: type[ReplayMethod]):
    method = built(kind, small_model())
    method.remember(small_batch(6, seed=1, task=1))
    expected = method.model.loss(small_batch(4)).item()
    assert method.observe(small_batch(4)) == pytest.approx(expected)


@each
def test_several_steps_a_batch_are_as_many_steps_on_it(kind: type[ReplayMethod]):
    several, one = built(kind, small_model(), steps_per_batch=3), built(kind, small_model())
    for method in (several, one):
        method.remember(opposed(small_batch(4, task=1)))
    one.remember = lambda _: None
    losses = [one.observe(small_batch(4)) for _ in range(3)]
    assert several.observe(small_batch(4)) == pytest.approx(losses[-1])
    torch.testing.assert_close(weights(several.model), weights(one.model))
    assert len(several.memory) == 8


@each
@pytest.mark.parametrize("bad", ["new", "old"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_loss_that_is_no_number_leaves_the_weights_and_memory_as_they_were(
    kind: type[ReplayMethod], bad: str, value: float, monkeypatch: pytest.MonkeyPatch
):
    method = built(kind, small_model())
    method.remember(small_batch(6, seed=1, task=1))
    before, stored = weights(method.model), copy.deepcopy(method.memory.columns)
    loss, bad_size = method.model.loss, 4 if bad == "new" else 6
    monkeypatch.setattr(method.model, "loss", lambda batch: loss(batch) * (value if len(batch) == bad_size else 1))
    with pytest.raises(Diverged, match="the weights were left as they are"):
        method.observe(small_batch(4))
    assert torch.equal(weights(method.model), before)
    assert_same(method.memory.columns, stored)


@each
def test_new_and_old_samples_go_through_batch_normalisation_apart(kind: type[ReplayMethod]):
    method = built(kind, small_model(lambda: nn.BatchNorm1d(4)))
    method.remember(small_batch(6, seed=1, task=1))
    method.model.backbone[1].momentum = 1.0  # so that the running average is that of the last pass
    features = method.model.backbone[0](small_batch(4).x)
    method.observe(small_batch(4))
    assert int(method.model.backbone[1].num_batches_tracked) == 2
    torch.testing.assert_close(method.model.backbone[1].running_mean, features.mean(dim=0))


@each
def test_a_frozen_part_of_the_backbone_stays_as_it_is(kind: type[ReplayMethod]):
    model = small_model()
    frozen = model.backbone[0].weight.requires_grad_(False)
    before, all_before = frozen.clone(), weights(model)
    method = built(kind, model)
    method.remember(opposed(small_batch(4, task=1)))
    method.observe(small_batch(4))
    assert torch.equal(frozen, before)
    assert not torch.equal(weights(model), all_before)


@each
def test_it_goes_on_after_the_head_has_grown(kind: type[ReplayMethod]):
    model = small_model()
    method = built(kind, model)
    method.remember(small_batch(6, task=1))
    method.observe(small_batch(4))
    method.grow(5)
    model.seen.announce([4], task=2)
    new = Batch(torch.ones(3, 3), torch.full((3,), 4), torch.full((3,), 2))
    losses = [method.observe(new) for _ in range(5)]
    assert losses[-1] < losses[0]
