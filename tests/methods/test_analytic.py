"""Ridge regression against the closed form, scikit-learn and leave-one-out by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import Ridge
from torch import Tensor

from holdfast.methods._projection import project, random_matrix
from holdfast.methods.analytic import CANDIDATES, recursive_step
from tests.support.sums import N_CLASSES, learned, learner_of, made


def solved(x: Tensor, y: Tensor, ridge: float) -> Tensor:
    x = x.double()
    gram = x.T @ x + ridge * torch.eye(x.shape[1], dtype=torch.float64)
    return torch.linalg.inv(gram) @ x.T @ F.one_hot(y, N_CLASSES).double()


def test_with_a_ridge_the_scores_are_those_of_scikit_learn() -> None:
    x, y = made(80)
    other = Ridge(alpha=0.5, fit_intercept=False).fit(x.double().numpy(), F.one_hot(y, N_CLASSES).double().numpy())
    expected = torch.from_numpy(other.predict(x.double().numpy()))
    torch.testing.assert_close(learned("analytic fixed", x, y).scores(x).double(), expected, rtol=1e-5, atol=1e-6)


def test_gram_and_recursive_form_agree_to_1e_8() -> None:
    x, y = made(300)
    x = x.double()
    inverse = torch.eye(6, dtype=torch.float64) / 0.5
    weights = torch.zeros(6, N_CLASSES, dtype=torch.float64)
    for i in range(0, 300, 7):
        inverse, weights = recursive_step(inverse, weights, x[i : i + 7], y[i : i + 7])
    assert (weights - solved(x, y, 0.5)).abs().max() < 1e-8

    x = x.float()
    gram, recursive = learner_of("analytic fixed"), learner_of("analytic recursive")
    for i in range(0, 300, 10):
        for learner in (gram, recursive):
            learner.observe(x[i : i + 10], y[i : i + 10])
            learner.scores(x)
    ours, others = gram.method._solution.tensors[-1], recursive.method._solution.tensors[-1]
    assert (ours - others).abs().max() < 1e-8
    assert (ours - solved(x, y, 0.5)).abs().max() < 1e-8


def test_the_recursion_goes_on_when_a_class_is_new() -> None:
    x, y = made(60)
    order = y.argsort()
    learner = learner_of("analytic recursive", n_classes=None)
    for i in order.tolist():
        learner.observe(x[i : i + 1], y[i : i + 1])
        learner.scores(x)
    weights = learner.method._solution.tensors[-1]
    assert (weights - solved(x, y, 0.5)).abs().max() < 1e-8


def test_the_ridge_that_is_chosen_has_the_least_generalised_cross_validation_error() -> None:
    x, y = made(40)
    x[:, 3:] = torch.randn(40, 3, generator=torch.Generator().manual_seed(5))  # of no use
    exact, targets = x.double(), F.one_hot(y, N_CLASSES).double()
    ridges = (CANDIDATES * torch.linalg.eigvalsh(exact.T @ exact).mean()).tolist()
    errors = []
    for ridge in ridges:
        hat = exact @ torch.linalg.inv(exact.T @ exact + ridge * torch.eye(6, dtype=torch.float64)) @ exact.T
        errors.append(((targets - hat @ targets).square().sum() / (1 - hat.trace() / 40) ** 2).item())
    best = ridges[min(range(len(ridges)), key=errors.__getitem__)]
    expected = exact @ solved(x, y, best)
    assert 0 < errors.index(min(errors)) < len(ridges) - 1
    torch.testing.assert_close(learned("analytic", x, y).scores(x).double(), expected, rtol=1e-5, atol=1e-6)


def test_a_ridge_is_chosen_where_there_are_fewer_samples_than_features() -> None:
    x, y = made(3)
    scores = learned("analytic", x, y).scores(x)
    assert scores[:, y].isfinite().all()
    assert torch.equal(scores.argmax(dim=1), y)


def test_a_projection_is_exact_whatever_the_batch() -> None:
    x, _ = made(9)
    matrix = random_matrix(6, 30, torch.Generator().manual_seed(0))
    projected = project(x.double(), matrix)
    for row in range(9):
        assert torch.equal(project(x[row : row + 1].double(), matrix)[0], projected[row])
        for column in (0, 7, 29):
            exact = sum(
                Fraction(a) * Fraction(b) / 256
                for a, b in zip(x[row].tolist(), matrix[:, column].tolist(), strict=True)
            )
            assert abs(projected[row, column].item() - float(exact)) < 1e-9
    assert matrix.std().item() / 256 == pytest.approx(1, abs=0.15)


def test_random_features_are_as_many_as_asked_for_and_none_below_zero() -> None:
    learner = learned("analytic projected", *made(20))
    features = learner.method.described(made(5)[0])
    assert features.shape == (5, 20)
    assert (features == 0).any()
    assert (features >= 0).all()


def test_a_recursive_form_without_a_ridge_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot change its ridge"):
        learner_of("analytic", input_shape=(6,), form="recursive")
