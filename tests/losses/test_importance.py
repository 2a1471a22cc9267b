import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.losses.importance import importance_penalty

SHAPES = [(3, 2), (3,), (2, 1, 2)]


def random_case(seed):
    generator = torch.Generator().manual_seed(seed)
    weights, anchor, importance = (
        [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES] for _ in range(3)
    )
    return weights, anchor, [part.abs() for part in importance]


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 100))
def test_it_is_the_sum_over_weights(seed, strength):
    weights, anchor, importance = random_case(seed)
    total = 0.0
    for theta, star, omega in zip(weights, anchor, importance, strict=True):
        for k in range(theta.numel()):
            total += float(omega.flatten()[k] * (theta.flatten()[k] - star.flatten()[k]) ** 2)
    penalty, _ = importance_penalty(weights, anchor, importance, strength=strength)
    assert float(penalty) == pytest.approx(strength * total, rel=1e-12)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 100))
def test_its_gradient_is_that_of_autograd(seed, strength):
    weights, anchor, importance = random_case(seed)
    _, gradient = importance_penalty(weights, anchor, importance, strength=strength)
    free = [theta.clone().requires_grad_() for theta in weights]
    parts = zip(free, anchor, importance, strict=True)
    total = sum(strength * (omega * (theta - star) ** 2).sum() for theta, star, omega in parts)
    torch.testing.assert_close(gradient, list(torch.autograd.grad(total, free)), rtol=1e-12, atol=1e-12)


def test_by_hand():
    weights, anchor, importance = [torch.tensor([3.0, 1.0])], [torch.tensor([1.0, 2.0])], [torch.tensor([0.5, 4.0])]
    penalty, (gradient,) = importance_penalty(weights, anchor, importance, strength=10.0)
    assert float(penalty) == 10 * (0.5 * 4 + 4 * 1)
    assert gradient.tolist() == [20.0, -80.0]


def test_it_changes_none_of_what_it_is_given_and_keeps_no_graph():
    weights, anchor, importance = random_case(0)
    before = [part.clone() for part in (*weights, *anchor, *importance)]
    penalty, gradient = importance_penalty([w.requires_grad_() for w in weights], anchor, importance, strength=2.0)
    assert all(torch.equal(a, b) for a, b in zip(before, (*weights, *anchor, *importance), strict=True))
    assert not penalty.requires_grad
    assert not any(part.requires_grad for part in gradient)
