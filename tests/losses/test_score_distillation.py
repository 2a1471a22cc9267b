"""The divergence of scores, written a second time as loops over groups, samples and classes."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.losses.score_distillation import score_distillation_loss

GROUPS = torch.tensor([[True, True, False, False, False], [False, False, True, False, True]])


def random_scores(seed: int, n: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    now, then = (3 * torch.randn(n, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    return now.requires_grad_(), then


def softmax(numbers: list[float]) -> list[float]:
    total = sum(math.exp(number) for number in numbers)
    return [math.exp(number) / total for number in numbers]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(0.5, 4.0))
def test_it_is_the_mean_over_samples_and_groups_of_the_softened_divergence(seed: int, n: int, temperature: float):
    now, then = random_scores(seed, n)
    total = 0.0
    for group in GROUPS:
        classes = group.nonzero().flatten().tolist()
        for i in range(n):
            q = softmax([then[i, c].item() / temperature for c in classes])
            p = softmax([now[i, c].item() / temperature for c in classes])
            total += sum(a * math.log(a / b) for a, b in zip(q, p, strict=True))
    expected = temperature**2 * total / (n * len(GROUPS))
    loss = score_distillation_loss(now, then, GROUPS, temperature=temperature)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_of_one_group_of_all_classes_it_is_torchs_divergence():
    now, then = random_scores(1)
    loss = score_distillation_loss(now, then, torch.ones(1, 5, dtype=torch.bool), temperature=1.0)
    torch.testing.assert_close(loss, F.kl_div(now.log_softmax(1), then.softmax(1), reduction="batchmean"))


def test_scores_that_are_as_they_were_cost_nothing_whatever_is_added_to_a_group():
    now, then = random_scores(2)
    shifted = then + torch.tensor([5.0, 5.0, -3.0, 0.0, -3.0])
    assert score_distillation_loss(shifted, then, GROUPS, temperature=2.0).item() == pytest.approx(0, abs=1e-12)
    assert score_distillation_loss(now, then, GROUPS, temperature=2.0).item() > 0.01


def test_classes_of_no_group_get_no_gradient_and_the_others_a_finite_one():
    now, then = random_scores(3)
    score_distillation_loss(now, then, GROUPS, temperature=2.0).backward()
    assert now.grad.isfinite().all()
    assert torch.equal(now.grad != 0, GROUPS.any(dim=0).expand(4, -1))
