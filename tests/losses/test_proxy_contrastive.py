"""The loss of PCR, written a second time as a supervised contrastive loss between samples and proxies."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.losses.proxy_contrastive import proxy_contrastive_loss


def case(seed: int, n: int, n_classes: int = 5) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(n, n_classes, generator=rng, dtype=torch.float64)
    return scores, torch.randint(n_classes - 1, (n,), generator=rng)  # the last class never comes


def slow(scores: Tensor, y: Tensor) -> float:
    """Contrast each sample with the proxy of every sample of the batch."""
    losses = []
    for i in range(len(y)):
        to_proxy_of = [math.exp(float(scores[i, y[k]])) for k in range(len(y))]
        P = [p for p in range(len(y)) if y[p] == y[i]]
        losses.append(-sum(math.log(to_proxy_of[p] / sum(to_proxy_of)) for p in P) / len(P))
    return sum(losses) / len(losses)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_it_is_the_contrastive_loss_between_samples_and_proxies(seed: int, n: int) -> None:
    scores, y = case(seed, n)
    loss = proxy_contrastive_loss(scores, y, competing=torch.ones_like(scores, dtype=torch.bool))
    assert float(loss) == pytest.approx(slow(scores, y), rel=1e-10, abs=1e-12)


def test_its_gradient_is_that_of_the_cross_entropy_with_counts() -> None:
    scores, y = case(0, 9)
    counts = torch.bincount(y, minlength=5).double()
    one, other = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    proxy_contrastive_loss(one, y, competing=torch.ones_like(scores, dtype=torch.bool)).backward()
    F.cross_entropy(other + counts.log(), y).backward()
    assert one.grad is not None
    torch.testing.assert_close(one.grad, other.grad)
    assert bool((one.grad[:, 4] == 0).all())  # the class of no sample


def test_a_class_that_does_not_compete_counts_as_absent() -> None:
    scores, _ = case(1, 4)
    y = torch.tensor([0, 0, 1, 1])
    competing = F.one_hot(y, 5).bool()
    assert float(proxy_contrastive_loss(scores, y, competing=competing)) == pytest.approx(math.log(2))
