from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from holdfast import Learner
from holdfast.core.batch import NO_TASK, Batch, join
from holdfast.methods.agem import AGEM
from holdfast.methods.gem import GEM
from tests.support.by_hand import LR, built, gradient_by_hand, opposed, weights
from tests.support.oracles import gem_by_nnls
from tests.support.small import small_batch, small_model


def shifted(batch: Batch, by: int, task: int) -> Batch:
    """The same samples as those of another task, with other classes."""
    return Batch(batch.x, (batch.y + by) % 3, torch.full_like(batch.task, task))


@pytest.mark.parametrize("last", [nn.Tanh, partial(nn.BatchNorm1d, 4)], ids=["tanh", "batch normalisation"])
@pytest.mark.parametrize(("memory_strength", "ridge"), [(0.5, 1e-3), (0.0, 0.0)])
def test_a_step_is_the_one_by_hand(last: Callable[[], nn.Module], memory_strength: float, ridge: float):
    method, same = (built(GEM, small_model(last), memory_strength=memory_strength, ridge=ridge) for _ in range(2))
    new = small_batch(4, task=2)
    olds = [shifted(new, 1, task=0), small_batch(6, seed=1, task=1), shifted(new, 2, task=5)]
    method.remember(join([olds[0][:2], olds[1], olds[0][2:], olds[2]]))
    method.remember(small_batch(3, seed=3, task=2))  # of the running task: no constraint
    method.observe(new)

    g, references = gradient_by_hand(same.model, new), torch.stack([gradient_by_hand(same.model, o) for o in olds])
    assert (references @ g < 0).any()
    expected = torch.from_numpy(gem_by_nnls(g.double(), references.double(), memory_strength, ridge)).float()
    torch.testing.assert_close(weights(method.model), weights(same.model) - LR * expected)


def test_a_step_that_hurts_no_task_is_that_of_the_new_batch():
    method, same = (built(GEM, small_model()) for _ in range(2))
    new = small_batch(4, task=2)
    method.remember(shifted(new, 0, task=0))
    method.observe(new)
    torch.testing.assert_close(weights(method.model), weights(same.model) - LR * gradient_by_hand(same.model, new))


def test_with_one_old_task_and_nothing_beyond_the_constraint_it_is_a_gem():
    gem, agem = built(GEM, small_model(), memory_strength=0.0, ridge=0.0), built(AGEM, small_model())
    for method in (gem, agem):
        method.remember(opposed(small_batch(4, task=1)))
        method.observe(small_batch(4))
    torch.testing.assert_close(weights(gem.model), weights(agem.model))


def test_a_small_step_raises_the_loss_of_no_old_task():
    method = built(GEM, small_model(), memory_strength=0.0, ridge=0.0)
    method.optimizer.param_groups[0]["lr"] = 1e-3
    new = small_batch(4, task=9)
    olds = [shifted(new, 1, task=0), small_batch(5, seed=1, task=1), small_batch(5, seed=2, task=2)]
    method.remember(join(olds))
    before = [method.model.loss(old).item() for old in olds]
    method.observe(new)
    for old, was in zip(olds, before, strict=True):
        assert method.model.loss(old).item() <= was + 1e-5


def test_up_to_as_many_samples_of_each_old_task_are_recalled():
    method = built(GEM, small_model(), replay_size=3)
    method.remember(join([small_batch(n, task=task) for n, task in ((5, 0), (2, 1), (5, 2), (5, 7))]))
    old = method.recall(join([small_batch(2, task=2), small_batch(2, task=4)]))
    assert old.task.tolist() == [0, 0, 0, 1, 1, 7, 7, 7]
    assert len({tuple(x) for x in old.x[:3].tolist()}) == 3
    assert len(method.recall(join([small_batch(1, task=task) for task in (0, 1, 2, 7)]))) == 0


def test_where_tasks_are_unknown_all_that_is_stored_is_one_old_task():
    learner = Learner("gem", setting="free", input_shape=(3,), n_classes=3)
    method = learner.method
    assert isinstance(method, GEM)
    method.remember(small_batch(8, task=NO_TASK))
    assert len(method.recall(small_batch(2, task=NO_TASK))) == 8
    method.replay_size = 5
    assert len(method.recall(small_batch(2, task=NO_TASK))) == 5
    assert "one constraint" in (method.caution() or "")
    assert Learner("gem", setting="class", input_shape=(3,)).method.caution() is None
