from __future__ import annotations

import numpy as np

from holdfast.methods.ewc import EWC
from tests.support.anchored import make, rows, softmax_gradient, weights_of
from tests.support.small import small_batch


def test_fisher_importance_and_weights_are_those_of_the_closed_form_over_three_tasks():
    lr, strength, W, a = 0.2, 3.0, 2, 0.9
    method = make(EWC, lr=lr, strength=strength, fisher_every=W)
    theta = weights_of(method)
    star, F, Fbar, acc, steps = theta.copy(), np.zeros_like(theta), np.zeros_like(theta), np.zeros_like(theta), 0
    for task in range(3):
        for i in range(5):  # an odd number: a window of two reaches over the end of a task
            batch = small_batch(4, seed=10 * task + i, task=task)
            method.observe(batch)
            g = softmax_gradient(theta, batch)
            theta = theta - lr * (g + 2 * strength * F * (theta - star))
            acc += g**2
            steps += 1
            if steps % W == 0:
                Fbar, acc = (1 - a) * Fbar + a * acc / W, np.zeros_like(acc)
        method.end_task(0)
        F, star = (Fbar - Fbar.min()) / (Fbar.max() - Fbar.min()), theta.copy()
        np.testing.assert_allclose(weights_of(method), theta, rtol=1e-9)
        np.testing.assert_allclose(rows(method.fisher), Fbar, rtol=1e-9)
        np.testing.assert_allclose(rows(method.importance), F, rtol=1e-9)
        np.testing.assert_allclose(rows(method.anchor), star, rtol=1e-9)


def test_the_gradient_is_squared_after_the_mean_over_the_batch():
    method, batch = make(EWC, fisher_every=1, fisher_rate=1.0), small_batch(6)
    theta = weights_of(method)
    method.observe(batch)
    np.testing.assert_allclose(rows(method.fisher), softmax_gradient(theta, batch) ** 2, rtol=1e-12)


def test_the_importance_reaches_from_zero_to_one():
    method = make(EWC, fisher_every=1)
    method.observe(small_batch(4))
    method.end_task(0)
    importance = rows(method.importance)
    assert (importance.min(), importance.max()) == (0, 1)


def test_before_the_first_window_is_full_nothing_is_held():
    method = make(EWC, fisher_every=3)
    for seed in range(2):
        method.observe(small_batch(4, seed=seed))
    method.end_task(0)
    assert not rows(method.importance).any()
    method.observe(small_batch(4, seed=2))
    method.end_task(0)
    assert rows(method.importance).max() == 1


def test_steps_on_one_batch_each_count():
    method = make(EWC, fisher_every=3, steps_per_batch=3)
    method.observe(small_batch(4))
    assert rows(method.fisher).any()


def test_important_weights_move_less_than_in_finetuning():
    def moved(strength: float) -> float:
        method = make(EWC, fisher_every=1, strength=strength)
        method.observe(small_batch(4))
        method.end_task(0)
        held, before = rows(method.importance) > 0.5, weights_of(method)
        new = small_batch(4, seed=1, task=1)
        for _ in range(20):
            method.observe(new)
        return float(np.abs(weights_of(method) - before)[held].sum())

    assert moved(4.0) < moved(0.0) / 2
