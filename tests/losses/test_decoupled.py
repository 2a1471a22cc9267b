from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.losses.decoupled import decoupled_loss


def case(seed: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of six classes, of which the last three are new."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, 6, generator=rng, dtype=torch.float64)
    return scores, torch.randint(3, 6, (n,), generator=rng), (torch.arange(6) > 2).expand(n, -1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(0, 3))
def test_it_is_the_papers_sum_of_two_losses(seed: int, n: int, rho: float) -> None:
    scores, y, new = case(seed, n)
    N, old = (3, 4, 5), (0, 1, 2)
    total = 0.0
    for o, label in zip(scores.tolist(), y.tolist(), strict=True):
        intra = -math.log(math.exp(o[label]) / sum(math.exp(o[c]) for c in N))
        inter = -math.log(sum(math.exp(o[c]) for c in N) / sum(math.exp(o[c]) for c in (*N, *old)))
        total += intra + rho * inter
    assert float(decoupled_loss(scores, y, new_classes=new, rho=rho)) == pytest.approx(total / n)


def test_at_one_it_is_the_cross_entropy_among_all_and_at_zero_among_the_new() -> None:
    scores, y, new = case(0, 5)
    torch.testing.assert_close(decoupled_loss(scores, y, new_classes=new, rho=1.0), F.cross_entropy(scores, y))
    among_new = F.cross_entropy(scores[:, 3:], y - 3)
    torch.testing.assert_close(decoupled_loss(scores, y, new_classes=new, rho=0.0), among_new)
