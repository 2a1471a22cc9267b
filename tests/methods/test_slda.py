"""Streaming discriminant analysis against the closed form, slow loops and scikit-learn."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from sklearn.covariance import OAS
from torch import Tensor

from holdfast import load_learner
from holdfast.core import sums
from holdfast.core.checkpoint import write_checkpoint
from holdfast.methods._base import Diverged
from holdfast.methods.slda import MOST_SHRINKAGE, Slda, _Factor, _ridge, oas_shrinkage
from tests.support.sums import N_CLASSES, learned, learner_of, made, method_of


def stretched(n: int) -> tuple[Tensor, Tensor]:
    """Samples that spread more in some directions than in others, as features do."""
    x, y = made(n)
    return x * torch.tensor([1.0, 1.0, 2.0, 2.0, 4.0, 6.0]), y


def scatter_of(x: Tensor, y: Tensor) -> Tensor:
    """Σ (x - μ_y)(x - μ_y)ᵀ, one sample at a time."""
    total = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for features, label in zip(x.double(), y, strict=True):
        deviation = features - x[y == label].double().mean(dim=0)
        total += torch.outer(deviation, deviation)
    return total


def closed_form(x: Tensor, y: Tensor, ridge: float, asked: Tensor) -> Tensor:
    """(n, n_classes) the scores, by an inverse."""
    inverse = torch.linalg.inv(scatter_of(x, y) + ridge * torch.eye(x.shape[1], dtype=torch.float64))
    scores = torch.zeros(len(asked), N_CLASSES, dtype=torch.float64)
    for c in range(N_CLASSES):
        mean = x[y == c].double().mean(dim=0)
        scores[:, c] = len(x) * (asked.double() @ inverse @ mean - 0.5 * mean @ inverse @ mean)
    return scores


def test_the_scores_are_those_of_the_closed_form() -> None:
    x, y = made(80)
    learner = learned("slda", x, y)
    scores = learner.scores(x)
    factor = method_of(learner)._solution
    assert isinstance(factor, _Factor)
    torch.testing.assert_close(scores.double(), closed_form(x, y, factor.ridge, x), rtol=1e-5, atol=1e-5)


def test_the_ridge_is_that_of_oas_in_scikit_learn_to_an_eighth_of_an_octave() -> None:
    x, y = stretched(80)
    means = torch.stack([x[y == c].double().mean(dim=0) for c in range(N_CLASSES)])
    shrinkage = OAS(assume_centered=True).fit((x.double() - means[y]).numpy()).shrinkage_
    scatter = scatter_of(x, y)
    assert oas_shrinkage(scatter.trace().item(), scatter.square().sum().item(), 80, 6) == pytest.approx(shrinkage)
    learner = learned("slda", x, y)
    learner.scores(x)
    ridge = method_of(learner)._solution.ridge
    wanted = shrinkage / (1 - shrinkage) * scatter.trace().item() / 6
    assert abs(math.log2(ridge / wanted)) <= 1 / 8 + 1e-6
    assert math.log2(ridge) * 4 == pytest.approx(round(math.log2(ridge) * 4))


def test_samples_that_came_since_the_factor_was_made_are_in_the_scores_exactly() -> None:
    """Old classes, new ones, one sample of a class and several; and the ridge follows."""
    x, y = stretched(400)
    learner = learner_of("slda")
    n_factors, last = 0, None
    for i in range(0, 400, 5):
        learner.observe(x[i : i + 5], y[i : i + 5] if i >= 40 else y[i : i + 5] % 2)
        labels = torch.cat([y[:40] % 2, y[40:]])[: i + 5]
        scores = learner.scores(x)
        factor = method_of(learner)._solution
        n_factors, last = n_factors + (factor is not last), factor
        if len(set(labels.tolist())) == N_CLASSES:
            torch.testing.assert_close(
                scores.double(), closed_form(x[: i + 5], labels, factor.ridge, x), rtol=1e-5, atol=1e-5
            )
        deviations = scatter_of(x[: i + 5], labels)
        wanted = _ridge(deviations.trace().item(), deviations.square().sum().item(), i + 5, 6)
        assert factor.ridge == pytest.approx(wanted)
    assert 2 <= n_factors < 40  # most batches needed no new one


def test_a_full_block_makes_a_new_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "BLOCK", 20)
    x, y = made(200)
    learner = learner_of("slda")
    for i in range(0, 200, 5):
        learner.observe(x[i : i + 5], y[i : i + 5])
        learner.predict(x)
        assert method_of(learner)._solution.n_rows < 20
    assert torch.equal(learner.predict(x), learned("slda", x, y).predict(x))


def test_one_sample_of_each_class_is_told_by_distance() -> None:
    x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    learner = learned("slda", x, torch.arange(3), n_classes=3)
    assert learner.predict(x + 0.5).tolist() == [0, 1, 2]


def test_equal_samples_of_a_class_have_no_spread_and_are_still_told_apart() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert learned("slda", x, torch.tensor([0, 0, 1]), n_classes=2).predict(x).tolist() == [0, 0, 1]


def test_a_spread_in_one_direction_only_is_shrunk_as_far_as_it_can_be() -> None:
    assert _ridge(6.0, 6.0, 3, 6) > 0
    assert oas_shrinkage(6.0, 6.0, 3, 6) == 1.0  # a multiple of the identity
    assert math.log2(_ridge(6.0, 6.0, 3, 6)) == pytest.approx(
        round(4 * math.log2(MOST_SHRINKAGE / (1 - MOST_SHRINKAGE))) / 4
    )


def test_it_is_the_method_slda() -> None:
    assert isinstance(learned("slda", *made(5)).method, Slda)


def test_sums_of_no_samples_are_told_when_scores_are_asked_for(tmp_path: Path) -> None:
    x, y = made(40)
    state = learned("slda", x, y).state_dict()
    windows = state["method"]["sums"]["coarse_by_window"]
    state["method"]["sums"]["coarse_by_window"] = {place: -window for place, window in windows.items()}
    write_checkpoint(tmp_path / "learner", state)
    learner = load_learner(tmp_path / "learner")
    with pytest.raises(Diverged, match="the sums over the samples have no solution"):
        learner.predict(x)
