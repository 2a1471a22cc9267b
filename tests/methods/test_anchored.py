"""What holds for every method that holds weights where they were."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from holdfast import Learner, load_learner
from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.classes import SETTINGS, Setting
from holdfast.core.optimizers import make_optimizer
from holdfast.methods._anchored import AnchoredMethod, min_max
from holdfast.methods._base import Diverged
from holdfast.methods.ewc import EWC
from holdfast.methods.finetune import Finetune
from holdfast.methods.rwalk import RWalk
from tests.support.anchored import METHODS, linear_model, make
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model

each_method = pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)


def quick(kind: type[AnchoredMethod]) -> dict[str, Any]:
    """Options by which every step counts in the importance."""
    return {"fisher_every": 1} if kind in (EWC, RWalk) else {}


def learned(kind: type[AnchoredMethod], **options: Any) -> AnchoredMethod:
    """One that has ended a task and gone some steps into the next."""
    method = make(kind, **quick(kind), **options)
    for task in range(2):
        for seed in range(2):
            method.observe(small_batch(4, seed=10 * task + seed, task=task))
        if task == 0:
            method.end_task(0)
    return method


# The penalty.


@each_method
@pytest.mark.parametrize("steps_per_batch", [1, 3])
def test_without_strength_it_is_finetuning_to_the_bit(kind: type[AnchoredMethod], steps_per_batch: int):
    options = {"steps_per_batch": steps_per_batch}
    method = make(kind, small_model(), strength=0.0, **quick(kind), **options)
    finetune = make(Finetune, small_model(), **options)
    for task in range(3):
        for seed in range(3):
            batch = small_batch(4, seed=10 * task + seed, task=task)
            assert method.observe(batch) == finetune.observe(batch)
        method.end_task(0)
    assert_same(dict(method.model.state_dict()), dict(finetune.model.state_dict()))


@each_method
def test_the_first_task_is_learned_as_in_finetuning(kind: type[AnchoredMethod]):
    method, finetune = make(kind, small_model(), **quick(kind)), make(Finetune, small_model())
    for seed in range(3):
        assert method.observe(small_batch(4, seed=seed)) == finetune.observe(small_batch(4, seed=seed))
    assert_same(dict(method.model.state_dict()), dict(finetune.model.state_dict()))


@each_method
def test_a_step_is_one_down_the_penalised_loss_which_is_what_is_reported(kind: type[AnchoredMethod]):
    method = learned(kind, strength=0.5)
    model, batch = copy.deepcopy(method.model), small_batch(4, seed=20, task=1)
    parameters = list(model.parameters())
    loss = model.loss(batch) + 0.5 * sum(
        (omega * (theta - star) ** 2).sum()
        for theta, star, omega in zip(parameters, method.anchor, method.importance, strict=True)
    )
    assert loss > model.loss(batch)
    assert method.observe(batch) == pytest.approx(loss.item(), rel=1e-12)
    loss.backward()
    expected = [theta.detach() - 0.1 * theta.grad for theta in parameters]
    torch.testing.assert_close([p.detach() for p in method.model.parameters()], expected, rtol=1e-12, atol=1e-12)


@each_method
def test_a_penalty_that_is_no_number_raises_and_leaves_everything_as_it_was(kind: type[AnchoredMethod]):
    method = learned(kind, strength=1.0)
    method.importance[0][0, 0] = torch.inf
    before = copy.deepcopy(method.state_dict())
    with pytest.raises(Diverged, match="the weights were left as they are"):
        method.observe(small_batch(4, seed=20, task=1))
    assert_same(method.state_dict(), before)


@each_method
def test_a_frozen_parameter_stays_and_matters_nothing(kind: type[AnchoredMethod]):
    model = small_model()
    model.backbone[0].weight.requires_grad_(False)
    frozen = model.backbone[0].weight.clone()
    # AdamW moves a parameter that has a gradient, even a gradient of zero.
    method = kind(model=model, optimizer=make_optimizer("adamw", model, lr=0.1), **quick(kind))
    for task in range(2):
        for seed in range(2):
            method.observe(small_batch(4, seed=seed, task=task))
        method.end_task(0)
    assert torch.equal(model.backbone[0].weight, frozen)
    assert not method.importance[0].any()
    assert method.importance[1].any()


# Scaling to [0, 1].


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(0, 2.0**100, width=32), min_size=1, max_size=4), min_size=1, max_size=4))
def test_scaled_values_lie_between_zero_and_one_over_all_tensors(values: list[list[float]]):
    flat = [value for part in values for value in part]
    scaled = [value for part in min_max([torch.tensor(part) for part in values]) for value in part.tolist()]
    assert scaled[flat.index(min(flat))] == 0
    if max(flat) - min(flat) > 1e-30:
        assert scaled[flat.index(max(flat))] == 1
    assert all(0 <= value <= 1 for value in scaled)
    pairs = sorted(zip(flat, scaled, strict=True))
    assert [value for _, value in pairs] == sorted(scaled)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e-45, 3e38])
def test_values_that_are_all_the_same_scale_to_zero(value: float):
    assert all(not part.any() for part in min_max([torch.full((2, 2), value), torch.full((3,), value)]))


# The moment at which the importance is taken.


@each_method
def test_a_task_without_a_batch_changes_nothing(kind: type[AnchoredMethod]):
    method = learned(kind)
    method.end_task(0)
    before = copy.deepcopy(method.state_dict())
    method.end_task(0)
    assert_same(method.state_dict(), before)


@each_method
def test_in_a_free_stream_it_consolidates_after_so_many_batches(kind: type[AnchoredMethod]):
    method = make(kind, linear_model("free"), consolidate_every=3, **quick(kind))
    by_hand = make(kind, linear_model("free"), **quick(kind))
    for i in range(7):
        batch = small_batch(4, seed=i, task=NO_TASK)
        assert method.observe(batch) == by_hand.observe(batch)
        if i in (2, 5):
            by_hand.end_task(0)
        assert method.n_consolidated == (i + 1) // 3
    assert_same(method.importance, by_hand.importance)
    assert_same(method.anchor, by_hand.anchor)
    assert_same(dict(method.model.state_dict()), dict(by_hand.model.state_dict()))
    assert any(part.any() for part in method.importance)


@each_method
def test_it_counts_batches_and_not_steps(kind: type[AnchoredMethod]):
    method = make(kind, consolidate_every=2, steps_per_batch=3)
    for i in range(4):
        method.observe(small_batch(4, seed=i))
        assert method.n_consolidated == (i + 1) // 2


@each_method
@pytest.mark.parametrize("setting", SETTINGS)
def test_it_cautions_where_it_means_little(kind: type[AnchoredMethod], setting: Setting):
    caution = make(kind, linear_model(setting)).caution()
    if setting == "free":
        assert "give consolidate_every" in str(caution)
        assert make(kind, linear_model(setting), consolidate_every=5).caution() is None
    elif setting == "class":
        assert "replay" in str(caution)
    else:
        assert caution is None


# A head that grows.


@each_method
def test_a_head_that_grows_keeps_what_was_held_and_adds_free_rows(kind: type[AnchoredMethod]):
    method = learned(kind)
    kept = copy.deepcopy({name: value for name, value in vars(method).items() if isinstance(value, list)})
    method.grow(6)
    weights = list(method.model.parameters())
    for name, before in kept.items():
        for parameter, old, new in zip(weights, before, getattr(method, name), strict=True):
            assert new.shape == parameter.shape
            assert torch.equal(new[:3], old)
            expected = parameter[3:] if name in ("anchor", "piece_began") else torch.zeros_like(parameter[3:])
            assert torch.equal(new[3:], expected)


@each_method
def test_rows_that_came_later_are_learned_as_if_they_had_been_there(kind: type[AnchoredMethod]):
    # Classes that do not compete have no gradient, so room for them from the beginning makes no difference.
    grown = make(kind, linear_model("task", 3), **quick(kind))
    roomy_model = linear_model("task", 6, n_seen=3)
    later = copy.deepcopy(grown.model)  # whose new rows come from the same generator
    later.grow(6)
    with torch.no_grad():
        for parameter, same in zip(roomy_model.parameters(), later.parameters(), strict=True):
            parameter.copy_(same)
    roomy = make(kind, roomy_model, **quick(kind))
    for task in range(3):
        if task == 1:
            grown.grow(6)
        for method in (grown, roomy):
            if task:
                method.model.seen.announce([3, 4, 5], task=task)
            for seed in range(3):
                batch = small_batch(4, seed=10 * task + seed, task=task)
                method.observe(Batch(batch.x, batch.y + (3 if task else 0), batch.task))
            method.end_task(0)
    torch.testing.assert_close(list(grown.model.parameters()), list(roomy.model.parameters()), rtol=1e-12, atol=0)
    torch.testing.assert_close(grown.importance, roomy.importance, rtol=1e-9, atol=0)


# Saving.


def channels_last() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.Flatten())
    return layers.to(memory_format=torch.channels_last)


@each_method
def test_a_saved_learner_goes_on_to_the_same_bits_however_its_weights_lie_in_memory(
    kind: type[AnchoredMethod], tmp_path: Path
):
    options = {"consolidate_every": 3, "setting": "free", "lr": 0.01, **quick(kind)}
    learner, never_saved = (Learner(kind.__name__.lower(), backbone=channels_last(), **options) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    for i in range(8):
        x, y = torch.randn(2, 3, 6, 6, generator=generator), torch.tensor([i // 2, i // 2 + 1])  # the head grows
        assert learner.observe(x, y) == never_saved.observe(x, y)
        if i in (0, 2, 3, 6):  # before and after the first consolidation
            learner.save(tmp_path / "learner")
            learner = load_learner(tmp_path / "learner", backbone=channels_last())
    assert_same(learner.state_dict(), never_saved.state_dict())
    assert learner.method.importance[0].is_contiguous(memory_format=torch.channels_last)


# Options.
