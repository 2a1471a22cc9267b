from __future__ import annotations

import numpy as np

from holdfast.methods.rwalk import RWalk
from tests.support.anchored import make, rows, softmax_gradient, weights_of
from tests.support.small import small_batch, small_model


def test_every_part_is_that_of_the_closed_form_over_three_tasks():
    lr, strength, W, a, xi = 0.2, 0.7, 2, 0.9, 1e-3
    method = make(RWalk, lr=lr, strength=strength, fisher_every=W, damping=xi)
    theta = weights_of(method)
    zero = np.zeros_like(theta)
    star, began, Omega, Fbar, acc, omega, score, steps = theta, theta, zero, zero, zero, zero, zero, 0

    def scaled(v: np.ndarray) -> np.ndarray:
        return (v - v.min()) / (v.max() - v.min())

    for task in range(3):
        s = zero
        for i in range(5):  # an odd number: a piece of two steps reaches over the end of a task
            batch = small_batch(4, seed=10 * task + i, task=task)
            method.observe(batch)
            g = softmax_gradient(theta, batch)
            delta = -lr * (g + 2 * strength * Omega * (theta - star))
            theta, omega, acc, steps = theta + delta, omega - g * delta, acc + g**2, steps + 1
            if steps % W == 0:
                s = s + np.maximum(0, omega / (xi + Fbar * (theta - began) ** 2))
                Fbar = (1 - a) * Fbar + a * acc / W
                began, omega, acc = theta, zero, zero
        np.testing.assert_allclose(rows(method.task_score), s, rtol=1e-8)
        method.end_task(0)
        score = score + (score + (2 * s if task == 0 else s)) / 2
        Omega, star = scaled(Fbar) + scaled(score), theta
        np.testing.assert_allclose(weights_of(method), theta, rtol=1e-9)
        np.testing.assert_allclose(rows(method.fisher), Fbar, rtol=1e-9)
        np.testing.assert_allclose(1.5**task * rows(method.score), score, rtol=1e-8)
        np.testing.assert_allclose(rows(method.importance), Omega, rtol=1e-8)
        np.testing.assert_allclose(rows(method.piece_began), began, rtol=1e-9)
        np.testing.assert_allclose(rows(method.path), omega, rtol=1e-7, atol=1e-15)


def test_both_parts_reach_from_zero_to_one():
    method = make(RWalk, fisher_every=1)
    method.observe(small_batch(4))
    method.end_task(0)
    importance = rows(method.importance)
    assert importance.min() >= 0
    assert 1 <= importance.max() <= 2


def test_a_stream_that_does_not_end_keeps_the_importance_finite():
    method = make(RWalk, small_model(), fisher_every=1, consolidate_every=1)
    batch = small_batch(2)
    for _ in range(300):  # 1.5 to the power of which is more than a weight's type can hold
        method.observe(batch)
    assert method.n_consolidated == 300
    assert 1 <= max(part.max() for part in method.importance) <= 2
