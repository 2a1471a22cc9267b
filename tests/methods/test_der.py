"""What one step of DER and DER++ learns from, and which logits it keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.core.batch import Batch
from holdfast.core.classes import Setting
from holdfast.core.model import Model
from holdfast.core.optimizers import make_optimizer
from holdfast.memory.retrieval.uniform import Uniform
from holdfast.memory.selection.reservoir import Reservoir
from holdfast.memory.storage import Memory
from holdfast.methods.der import DER
from holdfast.methods.er import ER
from holdfast.methods.finetune import Finetune
from tests.support.bare import bare
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model
from tests.support.toy import toy_batches

both_backbones = pytest.mark.parametrize(
    "last", [nn.Tanh, partial(nn.BatchNorm1d, 4)], ids=["tanh", "batch normalisation"]
)


def parts_of(model: Model) -> dict[str, Any]:
    parts = {"memory": Memory(20), "selection": Reservoir(), "retrieval": Uniform()}
    return {"model": model, "optimizer": make_optimizer("sgd", model, lr=0.1), **parts}


def der(model: Model | None = None, **options: Any) -> DER:
    return DER(**parts_of(model or small_model()), **{"replay_size": 20} | options)


def slow_logit_term(logits: Tensor, stored: list[list[float]]) -> float:
    """|| h(x') - z' ||² as a mean over all numbers in z'."""
    squares = [(logits[i, j].item() - stored[i][j]) ** 2 for i in range(len(stored)) for j in range(len(stored[i]))]
    return sum(squares) / len(squares)


@both_backbones
def test_the_logits_kept_are_those_with_which_the_sample_was_learned(last: Callable[[], nn.Module]) -> None:
    method = der(small_model(last))
    for seed in range(3):
        batch, before = small_batch(4, seed=seed), copy.deepcopy(method.model)
        method.observe(batch)
        newest = method.memory[4 * seed : 4 * seed + 4]
        assert torch.equal(newest.x, batch.x)
        assert torch.equal(newest.extra["logits"], before(batch.x).detach())


def test_the_logits_kept_stay_while_the_model_moves_on() -> None:
    method = der()
    method.observe(small_batch(4))
    kept = method.memory.extra("logits").clone()
    for seed in range(1, 4):
        method.observe(small_batch(4, seed=seed))
    assert torch.equal(method.memory.extra("logits")[:4], kept)


def test_of_several_steps_the_last_gives_the_logits() -> None:
    method, same = der(steps_per_batch=3), der()
    finetune = Finetune(model=same.model, optimizer=same.optimizer, steps_per_batch=2)
    finetune.observe(small_batch(4))
    method.observe(small_batch(4))
    assert torch.equal(method.memory.extra("logits"), same.model(small_batch(4).x).detach())
    assert method.selection.offered == 4


@both_backbones
@pytest.mark.parametrize("label_weight", [0.0, 0.5])
def test_the_loss_is_that_of_the_paper_each_term_over_its_own_pass(
    last: Callable[[], nn.Module], label_weight: float
) -> None:
    method = der(small_model(last), logit_weight=0.7, label_weight=label_weight)
    old, new = small_batch(6), small_batch(4, seed=1)
    method.observe(old)
    same, stored = copy.deepcopy(method.model), method.memory.extra("logits").tolist()
    value = method.observe(new)

    ce_new = F.cross_entropy(same(new.x), new.y)
    logits = same(old.x)
    ce_old = F.cross_entropy(same(old.x), old.y)
    slow = slow_logit_term(logits, stored)
    assert value == pytest.approx(ce_new.item() + 0.7 * slow + label_weight * ce_old.item(), rel=1e-5)

    loss = ce_new + 0.7 * F.mse_loss(logits, torch.tensor(stored)) + label_weight * ce_old
    expected = torch.autograd.grad(loss, list(same.parameters()))
    torch.testing.assert_close([p.grad for p in method.model.parameters()], list(expected))


def test_logits_of_classes_that_do_not_compete_are_held_too() -> None:
    learner = bare("der", setting="task", n_classes=6, memory=50, lr=0.05, replay_size=50, logit_weight=2.0)
    batches = toy_batches("task")
    for x, y, task in [batches[0], batches[12]]:  # of the first task and of the second
        learner.observe(x, y, task)
    method = learner.method
    assert isinstance(method, DER)
    model, memory = method.model, method.memory
    x, y, task = batches[13]
    new, old = model(x).detach(), model(memory.x).detach()
    own = F.cross_entropy(new[:, 2:4], y - 2)  # the second task has the classes 2 and 3
    everywhere = slow_logit_term(old, memory.extra("logits").tolist())
    assert memory.extra("logits").shape == (20, 6)
    assert learner.observe(x, y, task) == pytest.approx(own.item() + 2.0 * everywhere, rel=1e-5)


@pytest.mark.parametrize(("label_weight", "n_draws"), [(0.0, 1), (0.5, 2)])
def test_the_label_term_has_a_draw_of_its_own(
    label_weight: float, n_draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = der(replay_size=3, label_weight=label_weight)
    method.observe(small_batch(20))
    drawn: list[Batch] = []
    draw = method.memory.draw
    monkeypatch.setattr(method.memory, "draw", lambda size: drawn.append(draw(size)) or drawn[-1])
    method.observe(small_batch(4, seed=1))
    assert [len(batch) for batch in drawn] == [3] * n_draws
    assert n_draws == 1 or not torch.equal(drawn[0].x, drawn[1].x)


def test_with_the_label_term_alone_it_is_experience_replay() -> None:
    method = der(logit_weight=0.0, label_weight=1.0)
    er = ER(**parts_of(small_model()), replay_size=20)
    for seed in range(3):
        batch = small_batch(4, seed=seed)
        assert method.observe(batch) == pytest.approx(er.observe(batch), rel=1e-5)
    for ours, theirs in zip(method.model.parameters(), er.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_without_old_samples_it_is_finetuning() -> None:
    method, model = der(replay_size=0, label_weight=0.5), small_model()
    finetune = Finetune(model=model, optimizer=make_optimizer("sgd", model, lr=0.1))
    for seed in range(2):
        assert method.observe(small_batch(4, seed=seed)) == finetune.observe(small_batch(4, seed=seed))
    assert_same(dict(method.model.state_dict()), dict(model.state_dict()))


@pytest.mark.parametrize(("setting", "cautions"), [("task", False), ("class", True), ("domain", False), ("free", True)])
def test_it_cautions_where_old_samples_are_not_told_from_new_classes(setting: Setting, cautions: bool) -> None:
    by_logits = bare("der", setting=setting, input_shape=(8,)).method.caution()
    assert ("label_weight" in by_logits) if cautions else (by_logits is None)
    assert bare("der", setting=setting, input_shape=(8,), label_weight=0.5).method.caution() is None


# A head that grows.


def grown() -> DER:
    """It has learned four samples with three classes, and four with five."""
    method = der()
    method.observe(small_batch(4))
    method.grow(5)
    method.model.seen.announce([3, 4], task=1)
    method.observe(small_batch(4, seed=1, task=1))
    return method


def test_logits_are_compared_over_the_units_that_there_were() -> None:
    method = grown()
    new, stored = small_batch(4, seed=2, task=1), method.memory[:8].extra["logits"]
    assert method.memory.extra("n_units").tolist() == [3, 3, 3, 3, 5, 5, 5, 5]
    held = [row[: 3 if i < 4 else 5] for i, row in enumerate(stored.tolist())]
    logits = method.model(method.memory.x).detach()
    expected = method.model.loss(new).item() + 0.3 * slow_logit_term(logits, held)
    assert method.observe(new) == pytest.approx(expected, rel=1e-5)


def test_logits_are_compared_right_after_growth_when_none_are_as_wide_as_the_head() -> None:
    method = der()
    method.observe(small_batch(4))
    method.grow(5)
    method.model.seen.announce([3, 4], task=1)
    new, stored = small_batch(4, seed=1, task=1), method.memory.extra("logits").tolist()
    logits = method.model(method.memory.x).detach()
    expected = method.model.loss(new).item() + 0.3 * slow_logit_term(logits, stored)
    assert method.observe(new) == pytest.approx(expected, rel=1e-5)


def test_new_units_are_not_pulled_to_logits_that_were_never_given() -> None:
    method = der(logit_weight=100.0)
    method.observe(small_batch(4))
    method.grow(5)  # the new units do not compete yet, so that nothing but old logits could move them
    before = method.model.head.weight.detach().clone()
    method.observe(small_batch(4, seed=1))
    assert torch.equal(method.model.head.weight[3:], before[3:])
    assert not torch.equal(method.model.head.weight[:3], before[:3])
