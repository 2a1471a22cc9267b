"""Eq. 2 of Khosla et al. (2020), written a second time as slow loops in the paper's symbols."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.losses.contrastive import contrastive_loss


def random_case(seed, n, n_classes=3, d=5):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return features, torch.randint(n_classes, (n,), generator=generator)


def slow(features, y, tau):
    z = [f / f.norm() for f in features]
    rows = []
    for i in range(len(z)):
        A = [a for a in range(len(z)) if a != i]
        P = [p for p in A if y[p] == y[i]]
        if not P:
            continue
        denominator = sum(math.exp(float(z[i] @ z[a]) / tau) for a in A)
        rows.append(-sum(math.log(math.exp(float(z[i] @ z[p]) / tau) / denominator) for p in P) / len(P))
    return sum(rows) / len(rows) if rows else 0.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 5), st.floats(0.05, 5))
def test_it_equals_the_papers_equation(seed, n, n_classes, tau):
    features, y = random_case(seed, n, n_classes)
    assert float(contrastive_loss(features, y, temperature=tau)) == pytest.approx(slow(features, y, tau), rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 10))
def test_the_gradient_is_that_of_the_value(seed, n):
    features, y = random_case(seed, n)
    torch.autograd.gradcheck(lambda f: contrastive_loss(f, y, temperature=0.5), features.requires_grad_())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 10))
def test_neither_the_order_nor_the_lengths_nor_the_names_of_classes_count(seed, n):
    features, y = random_case(seed, n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    lengths = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)) + 0.5
    other = contrastive_loss((features * lengths)[order], 7 - y[order], temperature=0.1)
    torch.testing.assert_close(other, contrastive_loss(features, y, temperature=0.1))


def test_a_row_without_a_positive_pushes_but_has_no_loss_of_its_own():
    features, _ = random_case(0, 3)
    y = torch.tensor([0, 0, 1])
    z = F.normalize(features, dim=1)
    pull, push = z[0] @ z[1], (z[0] @ z[2], z[1] @ z[2])
    rows = [torch.log(1 + torch.exp(p - pull)) for p in push]
    torch.testing.assert_close(contrastive_loss(features, y, temperature=1.0), sum(rows) / 2)


@pytest.mark.parametrize("n", [1, 4])
def test_without_positives_there_is_no_loss_and_no_gradient(n):
    features = torch.randn(n, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = contrastive_loss(features, torch.arange(n), temperature=0.07)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(features.grad, torch.zeros(n, 3))


@pytest.mark.parametrize("temperature", [1e-4, 0.07])
@pytest.mark.parametrize("length", [1e-3, 1e6])
def test_it_stays_finite_where_exponentials_would_not(temperature, length):
    direction = torch.tensor([1.0, 2.0, -1.0])
    features = (length * torch.stack([direction, -direction, direction, -direction])).requires_grad_()
    loss = contrastive_loss(features, torch.tensor([0, 0, 1, 1]), temperature=temperature)
    loss.backward()
    # The only positive is opposite, one of two negatives the same: 2/τ apart.
    assert loss.item() == pytest.approx(2 / temperature, rel=1e-5)
    assert features.grad.isfinite().all()


def test_a_descent_draws_classes_together_and_apart_from_others():
    features, y = random_case(1, 12, n_classes=2)
    for _ in range(200):
        features = features.detach().requires_grad_()
        contrastive_loss(features, y, temperature=0.5).backward()
        features = features - features.grad
    cosines = F.normalize(features, dim=1) @ F.normalize(features, dim=1).T
    same = y[:, None] == y
    assert cosines[same].min() > cosines[~same].max() + 1
