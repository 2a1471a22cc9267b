from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from holdfast.methods.agem import AGEM
from tests.support.by_hand import LR, built, gradient_by_hand, opposed, weights
from tests.support.small import small_batch, small_model


@pytest.mark.parametrize("last", [nn.Tanh, partial(nn.BatchNorm1d, 4)], ids=["tanh", "batch normalisation"])
@pytest.mark.parametrize("disagree", [True, False])
def test_a_step_is_the_one_by_hand(last: Callable[[], nn.Module], disagree: bool):
    method, same = (built(AGEM, small_model(last)) for _ in range(2))
    new = small_batch(4)
    old = opposed(new) if disagree else new
    method.remember(old)
    method.observe(new)

    g, r = gradient_by_hand(same.model, new), gradient_by_hand(same.model, old)
    expected = g - (g @ r) / (r @ r) * r if disagree else g
    assert (g @ r < 0) == disagree
    torch.testing.assert_close(weights(method.model), weights(same.model) - LR * expected)
