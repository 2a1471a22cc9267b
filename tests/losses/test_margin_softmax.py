"""The loss of MDMT-R, written a second time as slow loops in the symbols of its equation."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.losses.margin_softmax import margin_softmax_loss

BLIND_LOGITS = [0.0, -math.inf]


def cosines_of(features, weights):
    return F.normalize(features, dim=1) @ F.normalize(weights, dim=1).T


def random_case(seed, n=6, d=5, n_classes=6):
    """Cosines, classes, and at random who sees whom; a sample sees its own class."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, d, generator=generator, dtype=torch.float64)
    weights = torch.randn(n_classes, d, generator=generator, dtype=torch.float64)
    y = torch.randint(n_classes, (n,), generator=generator)
    visible = torch.rand(n, n_classes, generator=generator) < 0.5
    visible[torch.arange(n), y] = True
    return cosines_of(features, weights), y, visible


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.floats(0.5, 32), st.floats(0, 0.5), st.floats(0, 0.5), st.sampled_from([0.0, -math.inf])
)
def test_it_equals_the_equation(seed, s, m1, m2, blind_logit):
    cosines, y, visible = random_case(seed)
    losses = []
    for c, label, V in zip(cosines.tolist(), y.tolist(), visible.tolist(), strict=True):
        theta = [math.acos(c_j) for c_j in c]
        exponentials = []
        for j in range(len(c)):
            if not V[j]:
                l_j = blind_logit
            elif j == label:
                l_j = c[j] + (math.cos(theta[j] + m1) - c[j]) + (math.cos(theta[j] + m2) - c[j])
            else:
                l_j = math.cos(theta[j] + m1)
            exponentials.append(math.exp(s * l_j))
        losses.append(-math.log(exponentials[label] / sum(exponentials)))
    loss = margin_softmax_loss(
        cosines, y, visible=visible, scale=s, class_margin=m2, task_margin=m1, blind_logit=blind_logit
    )
    assert float(loss) == pytest.approx(sum(losses) / len(losses), rel=1e-6, abs=1e-9)


def test_a_class_that_is_not_seen_counts_as_an_orthogonal_one_or_not_at_all():
    cosines = torch.tensor([[0.5, -0.9, 0.9, 0.9]], dtype=torch.float64)
    options = {"scale": 2.0, "class_margin": 0.0, "task_margin": 0.0}
    y, visible = torch.tensor([0]), torch.tensor([[True, False, False, False]])
    zero = margin_softmax_loss(cosines, y, visible=visible, blind_logit=0.0, **options)
    out = margin_softmax_loss(cosines, y, visible=visible, blind_logit=-math.inf, **options)
    assert float(zero) == pytest.approx(-math.log(math.e / (math.e + 3)))
    assert float(out) == 0


def test_without_margins_it_is_a_softmax_over_scaled_cosines():
    cosines, y, visible = random_case(5)
    loss = margin_softmax_loss(
        cosines, y, visible=visible | True, scale=7.0, class_margin=0.0, task_margin=0.0, blind_logit=0.0
    )
    torch.testing.assert_close(loss, F.cross_entropy(7 * cosines, y))


def test_without_a_task_margin_it_is_arcface():
    cosines, y, visible = random_case(6)
    loss = margin_softmax_loss(
        cosines, y, visible=visible | True, scale=24.0, class_margin=0.3, task_margin=0.0, blind_logit=0.0
    )
    arcface, rows = 24 * cosines, torch.arange(len(y))
    arcface[rows, y] = 24 * torch.cos(torch.acos(cosines[rows, y]) + 0.3)
    torch.testing.assert_close(loss, F.cross_entropy(arcface, y))


def test_classes_that_are_not_seen_get_no_gradient():
    cosines, y, visible = random_case(7)
    cosines.requires_grad_()
    margin_softmax_loss(
        cosines, y, visible=visible, scale=5.0, class_margin=0.1, task_margin=0.4, blind_logit=0.0
    ).backward()
    assert torch.equal(cosines.grad != 0, visible)


@pytest.mark.parametrize("blind_logit", BLIND_LOGITS)
@pytest.mark.parametrize("margin", [0.0, 0.1, 0.45])
def test_identical_and_opposite_vectors_have_finite_values_and_gradients(margin, blind_logit):
    direction = torch.randn(4, generator=torch.Generator().manual_seed(0))
    features = torch.stack([direction, -direction, direction * 3, direction]).requires_grad_()
    weights = torch.stack([direction * 5, -direction, direction]).requires_grad_()
    y, visible = torch.tensor([0, 0, 1, 2]), torch.ones(4, 3, dtype=torch.bool)
    visible[3, :2] = False
    loss = margin_softmax_loss(
        cosines_of(features, weights),
        y,
        visible=visible,
        scale=32.0,
        class_margin=margin,
        task_margin=margin,
        blind_logit=blind_logit,
    )
    loss.backward()
    assert loss.isfinite()
    assert features.grad.isfinite().all()
    assert weights.grad.isfinite().all()
