from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from holdfast.methods.agem import AGEM
from holdfast.methods.soft_gem import SoftGEM
from tests.support.by_hand import LR, built, gradient_by_hand, opposed, weights
from tests.support.small import small_batch, small_model


@pytest.mark.parametrize("last", [nn.Tanh, partial(nn.BatchNorm1d, 4)], ids=["tanh", "batch normalisation"])
@pytest.mark.parametrize("disagree", [True, False])
def test_a_step_is_the_one_by_hand(last: Callable[[], nn.Module], disagree: bool):
    method, same = (built(SoftGEM, small_model(last), epsilon=0.3) for _ in range(2))
    new = small_batch(4)
    old = opposed(new) if disagree else new
    method.remember(old)
    method.observe(new)

    g, r = gradient_by_hand(same.model, new), gradient_by_hand(same.model, old)
    unit_g, unit_r = g / g.norm(), r / r.norm()
    expected = g.norm() * (unit_g - (unit_g @ unit_r - 0.3) * unit_r) if disagree else g
    assert (unit_g @ unit_r < 0.3) == disagree
    torch.testing.assert_close(weights(method.model), weights(same.model) - LR * expected)


def test_with_an_epsilon_of_zero_it_is_a_gem():
    soft, hard = built(SoftGEM, small_model(), epsilon=0.0), built(AGEM, small_model())
    for method in (soft, hard):
        method.remember(opposed(small_batch(4)))
        method.observe(small_batch(4))
    torch.testing.assert_close(weights(soft.model), weights(hard.model))


def test_the_larger_epsilon_the_more_the_old_loss_falls():
    losses = []
    for epsilon in (0.0, 0.5, 1.0):
        method, old = built(SoftGEM, small_model(), epsilon=epsilon), opposed(small_batch(4))
        method.remember(old)
        method.observe(small_batch(4))
        losses.append(method.model.loss(old).item())
    assert losses[0] > losses[1] > losses[2]
