from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from holdfast.methods.mega2 import MEGA2
from tests.support.by_hand import LR, built, gradient_by_hand, opposed, weights
from tests.support.small import small_batch, small_model


@pytest.mark.parametrize("last", [nn.Tanh, partial(nn.BatchNorm1d, 4)], ids=["tanh", "batch normalisation"])
@pytest.mark.parametrize("disagree", [True, False])
def test_a_step_is_the_one_by_hand(last: Callable[[], nn.Module], disagree: bool):
    method, same = (built(MEGA2, small_model(last)) for _ in range(2))
    new = small_batch(4)
    old = opposed(new) if disagree else small_batch(6, seed=1)
    method.remember(old)
    method.observe(new)

    new_loss, old_loss = same.model.loss(new).item(), same.model.loss(old).item()
    g, r = gradient_by_hand(same.model, new).double(), gradient_by_hand(same.model, old).double()
    tt, rr, tr = g @ g, r @ r, g @ r
    phi = torch.acos(tr / (tt * rr).sqrt())
    grid = torch.linspace(0, torch.pi / 2, 1_000_001, dtype=torch.float64)
    b = grid[(new_loss * torch.cos(grid) + old_loss * torch.cos(phi - grid)).argmax()]
    # The solution of ⟨g~, g⟩ = |g|² cos β and ⟨g~, r⟩ = |g| |r| cos(φ - β) in the plane of g and r.
    along_r = (tt * rr).sqrt() * torch.cos(phi - b)
    d = tt * rr - tr**2
    expected = (rr * tt * torch.cos(b) - tr * along_r) / d * g + (tt * along_r - tr * tt * torch.cos(b)) / d * r
    torch.testing.assert_close(weights(method.model), weights(same.model) - LR * expected.float())
    assert b > 0.1
