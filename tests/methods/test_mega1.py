from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from holdfast.methods.mega1 import MEGA1
from tests.support.by_hand import LR, built, gradient_by_hand, weights
from tests.support.small import small_batch, small_model


@pytest.mark.parametrize("last", [nn.Tanh, partial(nn.BatchNorm1d, 4)], ids=["tanh", "batch normalisation"])
def test_a_step_is_the_one_by_hand(last: Callable[[], nn.Module]):
    method, same = (built(MEGA1, small_model(last)) for _ in range(2))
    new, old = small_batch(4), small_batch(6, seed=1)
    method.remember(old)
    method.observe(new)

    ratio = same.model.loss(old).item() / same.model.loss(new).item()
    expected = gradient_by_hand(same.model, new) + ratio * gradient_by_hand(same.model, old)
    assert abs(ratio - 1) > 0.1
    torch.testing.assert_close(weights(method.model), weights(same.model) - LR * expected)


def test_while_the_new_loss_is_tiny_only_old_samples_are_learned():
    method, same = (built(MEGA1, small_model(), smallest_loss=100.0) for _ in range(2))
    new, old = small_batch(4), small_batch(6, seed=1)
    method.remember(old)
    method.observe(new)
    expected = gradient_by_hand(same.model, old)
    torch.testing.assert_close(weights(method.model), weights(same.model) - LR * expected)


def test_a_new_loss_of_zero_does_not_divide():
    method = built(MEGA1, small_model(), smallest_loss=0.0)
    method.remember(small_batch(6, seed=1))
    new = small_batch(4)
    new.y.fill_(0)
    with torch.no_grad():
        method.model.head.bias[0] = 1e4
    assert method.observe(new) == 0
    assert weights(method.model).isfinite().all()
