from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.methods.finetune import Finetune
from holdfast.methods.mas import MAS
from tests.support.anchored import linear_model, make, rows, softmax_gradient, weights_of
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model


def squared_scores_gradient(theta: np.ndarray, batch: Batch, competing: list[int]) -> np.ndarray:
    """∂/∂θ Σ_x Σ_c s_c², whose row c is 2 Σ_x s_c (x, 1)."""
    total = np.zeros_like(theta)
    for x in batch.x.double().numpy():
        z = np.append(x, 1.0)
        for c in competing:
            total[c] += 2 * (theta[c] @ z) * z
    return total


def test_importance_and_weights_are_those_of_the_closed_form_over_three_tasks():
    lr, strength = 0.1, 0.3
    method = make(MAS, lr=lr, strength=strength)
    theta = weights_of(method)
    star, Omega = theta.copy(), np.zeros_like(theta)
    for task in range(3):
        total, N = np.zeros_like(theta), 0
        for i, n in enumerate([4, 1, 3]):  # batches of different sizes
            batch = small_batch(n, seed=10 * task + i, task=task)
            method.observe(batch)
            total += np.abs(squared_scores_gradient(theta, batch, [0, 1, 2]))
            N += n
            g = softmax_gradient(theta, batch)
            theta = theta - lr * (g + 2 * strength * Omega * (theta - star))
        method.end_task(0)
        Omega, star = total / N, theta.copy()  # replaced
        np.testing.assert_allclose(weights_of(method), theta, rtol=1e-9)
        np.testing.assert_allclose(rows(method.importance), Omega, rtol=1e-9)


def test_only_classes_that_compete_count():
    method = make(MAS, linear_model("task", n_classes=5, n_seen=3))
    theta, batch = weights_of(method), small_batch(4)
    method.observe(batch)
    method.end_task(0)
    expected = np.abs(squared_scores_gradient(theta, batch, [0, 1, 2])) / 4
    np.testing.assert_allclose(rows(method.importance), expected, rtol=1e-12)
    assert not rows(method.importance)[3:].any()


def test_in_a_network_the_importance_of_one_sample_is_that_of_autograd():
    method, sample = make(MAS, small_model()), small_batch(1)
    before = copy.deepcopy(method.model)
    method.observe(sample)
    method.end_task(0)
    squared_norm = sum(score**2 for score in before(sample.x)[0])
    expected = torch.autograd.grad(squared_norm, list(before.parameters()))
    torch.testing.assert_close(method.importance, [part.abs() for part in expected])


def test_measuring_leaves_the_step_and_the_batch_statistics_alone():
    def normalised() -> Model:
        return small_model(lambda: nn.BatchNorm1d(4))

    method, finetune = make(MAS, normalised()), make(Finetune, normalised())
    for seed in range(3):
        assert method.observe(small_batch(4, seed=seed)) == finetune.observe(small_batch(4, seed=seed))
    assert_same(dict(method.model.state_dict()), dict(finetune.model.state_dict()))
