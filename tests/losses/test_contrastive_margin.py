"""Eq. dmsl with σ_c, σ_t and σ_s, written a second time as slow loops in the paper's symbols."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.losses.contrastive_margin import contrastive_margin_loss, paired_margin_loss, widened


def angle(a, b):
    return math.acos(float(F.cosine_similarity(a, b, dim=0)))


def random_case(seed, n=6, d=5, n_tasks=3, per_task=2):
    """Samples of `n_tasks` tasks with `per_task` classes each; class j belongs to task j // per_task."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, d, generator=generator, dtype=torch.float64)
    weights = torch.randn(n_tasks * per_task, d, generator=generator, dtype=torch.float64)
    y = torch.randint(n_tasks * per_task, (n,), generator=generator)
    return features, weights, y, y // per_task, torch.arange(n_tasks * per_task) // per_task


def slow_against_classes(features, weights, y, task, task_of_class, visible, s, m_c, m_t, blind):
    total = 0.0
    for z, label, k, shown in zip(features, y.tolist(), task.tolist(), visible, strict=True):
        beta = [angle(z, w) for w in weights]
        sigma_c = math.exp(s * math.cos(beta[label] + m_c + m_t))
        sigma_t = sigma_s = 0.0
        for j in range(len(weights)):
            if j == label:
                continue
            if not shown[j]:
                sigma_s += blind
            elif task_of_class[j] == k:
                sigma_t += math.exp(s * math.cos(beta[j] + m_t))
            else:
                sigma_s += math.exp(s * math.cos(beta[j]))
        total += -math.log(sigma_c / (sigma_c + sigma_t + sigma_s))
    return total / len(y)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.5, 30), st.floats(0, 0.5), st.floats(0, 0.5), st.booleans(), st.booleans())
def test_against_classes_it_equals_the_papers_equation(seed, s, m_c, m_t, own_task_only, is_orthogonal):
    features, weights, y, task, task_of_class = random_case(seed)
    same_task = task[:, None] == task_of_class
    competing = same_task if own_task_only else torch.ones_like(same_task)
    cosines = F.normalize(features, dim=1) @ F.normalize(weights, dim=1).T
    blind_logit = 0.0 if is_orthogonal else -math.inf
    loss = contrastive_margin_loss(
        cosines,
        y,
        same_task=same_task,
        competing=competing,
        scale=s,
        class_margin=m_c,
        task_margin=m_t,
        blind_logit=blind_logit,
    )
    blind = math.exp(blind_logit)
    slow = slow_against_classes(features, weights, y, task, task_of_class, competing, s, m_c, m_t, blind)
    assert float(loss) == pytest.approx(slow, rel=1e-6, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.5, 30), st.floats(0, 0.5), st.floats(0, 0.5))
def test_between_samples_it_equals_the_papers_equation(seed, s, m_c, m_t):
    features, _, y, task, _ = random_case(seed, n=9)
    n = len(y)
    is_anchor = torch.arange(n) < 6
    rows = []
    for a in range(6):
        P = [p for p in range(n) if p != a and y[p] == y[a] and task[p] == task[a]]
        if not P:
            continue
        sigma_t = sum(
            math.exp(s * math.cos(angle(features[a], features[j]) + m_t))
            for j in range(n)
            if task[j] == task[a] and y[j] != y[a]
        )
        sigma_s = sum(math.exp(s * math.cos(angle(features[a], features[j]))) for j in range(n) if task[j] != task[a])
        pairs = []
        for p in P:
            sigma_c = math.exp(s * math.cos(angle(features[a], features[p]) + m_c + m_t))
            pairs.append(-math.log(sigma_c / (sigma_c + sigma_t + sigma_s)))
        rows.append(sum(pairs) / len(P))
    expected = sum(rows) / len(rows) if rows else 0.0
    loss = paired_margin_loss(features, y, task, is_anchor=is_anchor, scale=s, class_margin=m_c, task_margin=m_t)
    assert float(loss) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_with_one_task_and_no_task_margin_it_is_arcface():
    features, weights, y, *_ = random_case(3)
    cosines = F.normalize(features, dim=1) @ F.normalize(weights, dim=1).T
    everywhere = torch.ones_like(cosines, dtype=torch.bool)
    loss = contrastive_margin_loss(
        cosines, y, same_task=everywhere, competing=everywhere, scale=24.0, class_margin=0.3, task_margin=0.0
    )
    arcface = 24 * cosines.clone()
    rows = torch.arange(len(y))
    arcface[rows, y] = 24 * torch.cos(torch.acos(cosines[rows, y]) + 0.3)
    torch.testing.assert_close(loss, F.cross_entropy(arcface, y))


def test_without_margins_it_is_a_softmax_over_scaled_cosines():
    features, weights, y, task, task_of_class = random_case(5)
    cosines = F.normalize(features, dim=1) @ F.normalize(weights, dim=1).T
    same_task = task[:, None] == task_of_class
    loss = contrastive_margin_loss(
        cosines, y, same_task=same_task, competing=same_task | True, scale=7.0, class_margin=0.0, task_margin=0.0
    )
    torch.testing.assert_close(loss, F.cross_entropy(7 * cosines, y))


def test_margins_make_the_loss_larger():
    features, weights, y, task, task_of_class = random_case(7)
    cosines = F.normalize(features, dim=1) @ F.normalize(weights, dim=1).T
    same_task = task[:, None] == task_of_class

    def loss(m_c, m_t):
        return contrastive_margin_loss(
            cosines, y, same_task=same_task, competing=same_task | True, scale=10.0, class_margin=m_c, task_margin=m_t
        )

    assert loss(0.2, 0.0) > loss(0.0, 0.0)
    assert loss(0.0, 0.2) > loss(0.0, 0.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("margin", [0.0, 0.1, 0.45])
def test_identical_and_opposite_vectors_have_finite_values_and_gradients(sign, margin):
    direction = torch.randn(4, generator=torch.Generator().manual_seed(0))
    features = torch.stack([direction, sign * direction, direction * 3]).requires_grad_()
    weights = torch.stack([direction * 5, -direction])
    y, task = torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1])
    cosines = F.normalize(features, dim=1) @ F.normalize(weights, dim=1).T
    everywhere = torch.ones_like(cosines, dtype=torch.bool)
    loss = contrastive_margin_loss(
        cosines, y, same_task=everywhere, competing=everywhere, scale=32.0, class_margin=margin, task_margin=margin
    ) + paired_margin_loss(features, y, task, is_anchor=y >= 0, scale=32.0, class_margin=margin, task_margin=margin)
    loss.backward()
    assert loss.isfinite()
    assert features.grad.isfinite().all()


@given(st.floats(0.01, 3.13), st.floats(0, 0.5))
def test_widened_is_the_cosine_of_the_wider_angle(beta, margin):
    cosine = torch.tensor(math.cos(beta), dtype=torch.float64)
    assert float(widened(cosine, margin)) == pytest.approx(math.cos(beta + margin), abs=1e-9)


def test_without_positives_there_is_no_loss_and_no_gradient():
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    y = torch.tensor([0, 1, 2])
    loss = paired_margin_loss(
        features, y, torch.zeros(3), is_anchor=y >= 0, scale=10.0, class_margin=0.1, task_margin=0.1
    )
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(features.grad, torch.zeros(3, 4))


def test_a_batch_of_one_class_has_no_negatives_and_no_loss():
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    zeros = torch.zeros(3, dtype=torch.int64)
    loss = paired_margin_loss(
        features, zeros, zeros, is_anchor=zeros == 0, scale=10.0, class_margin=0.1, task_margin=0.1
    )
    loss.backward()
    assert loss.item() == 0
    assert features.grad.isfinite().all()


def test_weights_say_how_much_each_sample_counts():
    rng = torch.Generator().manual_seed(0)
    cosines, y = torch.rand(4, 3, generator=rng) * 2 - 1, torch.tensor([0, 2, 1, 1])
    everywhere = torch.ones(4, 3, dtype=torch.bool)
    settings = {"scale": 5.0, "class_margin": 0.1, "task_margin": 0.2}
    weights = torch.tensor([0.5, 0.25, 0.0, 2.0])
    weighted = contrastive_margin_loss(
        cosines, y, same_task=everywhere, competing=everywhere, weights=weights, **settings
    )
    one_by_one = [
        contrastive_margin_loss(
            cosines[i : i + 1], y[i : i + 1], same_task=everywhere[:1], competing=everywhere[:1], **settings
        )
        for i in range(4)
    ]
    torch.testing.assert_close(weighted, sum(w * loss for w, loss in zip(weights, one_by_one, strict=True)))
