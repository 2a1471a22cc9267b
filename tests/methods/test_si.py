from __future__ import annotations

import numpy as np
import pytest
import torch

from holdfast.core.optimizers import make_optimizer
from holdfast.methods.si import SI
from tests.support.anchored import linear_model, make, rows, softmax_gradient, weights_of
from tests.support.small import small_batch


def test_importance_and_weights_are_those_of_the_closed_form_over_three_tasks():
    lr, strength, xi = 0.2, 0.5, 1e-3
    method = make(SI, lr=lr, strength=strength, damping=xi)
    theta = weights_of(method)
    star, Omega = theta.copy(), np.zeros_like(theta)
    for task in range(3):
        omega = np.zeros_like(theta)
        for i in range(4):
            batch = small_batch(4, seed=10 * task + i, task=task)
            method.observe(batch)
            g = softmax_gradient(theta, batch)
            delta = -lr * (g + 2 * strength * Omega * (theta - star))
            theta = theta + delta
            omega += -g * delta
        np.testing.assert_allclose(rows(method.path), omega, rtol=1e-8, atol=1e-15)
        method.end_task(0)
        Omega, star = Omega + np.maximum(0, omega / (xi + (theta - star) ** 2)), theta.copy()
        np.testing.assert_allclose(weights_of(method), theta, rtol=1e-9)
        np.testing.assert_allclose(rows(method.importance), Omega, rtol=1e-8)
        assert not rows(method.path).any()


@pytest.mark.parametrize("held", [False, True], ids=["first task", "held by a task before"])
def test_the_path_integral_sums_to_the_drop_of_the_loss_without_the_penalty(held: bool):
    # The sum misses ½ Δᵀ H Δ a step, which is at most lr · |H| / 2 = 0.1 % of a step's drop for |H| < 20.
    method = make(SI, lr=1e-4, strength=0.1)
    if held:
        method.observe(small_batch(30, seed=1))
        method.end_task(0)
        with torch.no_grad():  # away from the anchor, so that the penalty has a pull
            for parameter in method.model.parameters():
                parameter += 0.1
    batch = small_batch(30)
    before = method.model.loss(batch).item()
    for _ in range(300):
        method.observe(batch)
    drop = before - method.model.loss(batch).item()
    assert rows(method.path).sum() == pytest.approx(drop, rel=1e-3)


def test_with_momentum_the_path_is_the_one_that_was_gone():
    model = linear_model()
    method = SI(model=model, optimizer=make_optimizer("sgd", model, lr=0.1, momentum=0.9))
    omega = 0.0
    for seed in range(4):
        batch = small_batch(4, seed=seed)
        before, gradient = weights_of(method), softmax_gradient(weights_of(method), batch)
        method.observe(batch)
        omega = omega - gradient * (weights_of(method) - before)
    np.testing.assert_allclose(rows(method.path), omega, rtol=1e-9)


def test_importance_never_falls_from_task_to_task():
    method = make(SI)
    last = rows(method.importance)
    for task in range(4):
        for seed in range(3):
            method.observe(small_batch(3, seed=10 * task + seed, task=task))
        method.end_task(0)
        assert (rows(method.importance) >= last).all()
        last = rows(method.importance)
