"""Random Fourier features: the kernel that they approximate."""

from __future__ import annotations

import torch

from tests.support.sums import learned, learner_of, made


def test_products_of_features_are_those_of_the_kernel() -> None:
    x, y = made(12)
    learner = learner_of("randumb", width=4000, gamma=0.7, input_shape=(6,))
    features = learner.method.described(x)
    unit = x.double() / x.double().norm(dim=1, keepdim=True)
    kernel = torch.exp(-0.7 * torch.cdist(unit, unit) ** 2)
    assert (features @ features.T - kernel).abs().max() < 5 * 4000**-0.5
    assert len(y) == len(features)


def test_the_length_of_a_sample_does_not_matter() -> None:
    x, _ = made(12)
    learner = learner_of("randumb", input_shape=(6,))
    torch.testing.assert_close(learner.method.described(x), learner.method.described(8 * x))


def test_it_tells_apart_what_no_line_does() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, generator=rng)
    y = (x[:, 0] * x[:, 1] > 0).long()  # quadrants
    learner = learned("randumb", x, y, width=200, n_classes=2)
    assert (learner.predict(x) == y).double().mean() > 0.9
    assert (learned("slda", x, y, n_classes=2).predict(x) == y).double().mean() < 0.7


def test_another_seed_draws_other_features_and_the_same_seed_the_same() -> None:
    x, _ = made(3)
    one, same, other = (learner_of("randumb", input_shape=(6,), seed=seed).method.described(x) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
