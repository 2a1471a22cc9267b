"""Nearest class mean against slow loops and scikit-learn."""

from __future__ import annotations

import torch
from sklearn.neighbors import NearestCentroid

from tests.support.sums import learned, made


def test_it_predicts_the_class_whose_mean_has_the_largest_cosine() -> None:
    x, y = made(80)
    scores = learned("ncm", x, y).scores(x)
    for i in range(len(x)):
        for c in range(4):
            mean = x[y == c].double().mean(dim=0)
            cosine = (x[i].double() @ mean) / (x[i].double().norm() * mean.norm())
            torch.testing.assert_close(scores[i, c].double(), cosine, rtol=1e-6, atol=1e-6)


def test_with_distances_it_is_the_nearest_centroid_of_scikit_learn() -> None:
    x, y = made(80)
    other = NearestCentroid().fit(x.numpy(), y.numpy())
    assert learned("ncm euclidean", x, y).predict(x).tolist() == other.predict(x.numpy()).tolist()
