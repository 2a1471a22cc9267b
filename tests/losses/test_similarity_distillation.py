from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.losses.similarity_distillation import similarity_distillation_loss


def slow(now: Tensor, then: Tensor, tau: float) -> float:
    """-1/n Σ_i Σ_{j ≠ i} q_ij log p_ij."""

    def shares(rows: Tensor, i: int) -> dict[int, float]:
        e = {
            j: math.exp(float(rows[i] @ rows[j] / (rows[i].norm() * rows[j].norm())) / tau)
            for j in range(len(rows))
            if j != i
        }
        return {j: value / sum(e.values()) for j, value in e.items()}

    n = len(now)
    return -sum(q * math.log(shares(now, i)[j]) for i in range(n) for j, q in shares(then, i).items()) / n


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 7), st.floats(0.09, 2))
def test_it_is_the_cross_entropy_of_the_rows_of_similarities(seed: int, n: int, tau: float) -> None:
    now, then = torch.randn(2, n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert float(similarity_distillation_loss(now, then, temperature=tau)) == pytest.approx(slow(now, then, tau))


def test_it_is_least_where_nothing_moved_and_has_no_slope_there() -> None:
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    now = rows.clone().requires_grad_()
    similarity_distillation_loss(now, rows, temperature=0.5).backward()
    assert now.grad is not None
    torch.testing.assert_close(now.grad, torch.zeros_like(rows), atol=1e-12, rtol=0)


def test_one_sample_is_similar_to_none() -> None:
    now = torch.ones(1, 3, requires_grad=True)
    loss = similarity_distillation_loss(now, torch.zeros(1, 3), temperature=1.0)
    loss.backward()
    assert loss.item() == 0
