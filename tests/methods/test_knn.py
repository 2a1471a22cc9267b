"""Nearest stored samples against slow loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from holdfast import Learner
from holdfast.methods._base import Diverged
from tests.support.sums import Breaking, made


def test_the_nearest_stored_samples_vote_by_their_cosines() -> None:
    x, y = made(60)
    learner = Learner("knn", backbone="identity", memory=100, k=7, temperature=0.1, n_classes=4)
    learner.observe(x[:40], y[:40])
    scores = learner.scores(x[40:])
    for i in range(20):
        a = x[40 + i].double()
        cosines = [float(a @ b / (a.norm() * b.norm())) for b in x[:40].double()]
        votes = [0.0] * 4
        for j in sorted(range(40), key=lambda j: -cosines[j])[:7]:
            votes[int(y[j])] += math.exp((cosines[j] - 1) / 0.1) / 7
        torch.testing.assert_close(scores[i].double(), torch.tensor(votes).double(), rtol=1e-4, atol=1e-6)


def test_samples_of_classes_that_do_not_compete_have_no_vote() -> None:
    learner = Learner("knn", backbone="identity", setting="task", memory=10, k=1, n_classes=4)
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    learner.observe(x, torch.tensor([0, 1]), 0)
    learner.observe(torch.tensor([[1.0, 0.2], [0.2, 1.0]]), torch.tensor([2, 3]), 1)
    assert learner.predict(x, 0).tolist() == [0, 1]
    assert learner.predict(x, 1).tolist() == [2, 3]


def test_memory_stays_within_its_bytes_with_the_features_in_them() -> None:
    network = nn.Linear(6, 50)
    learner = Learner("knn", backbone=network, memory="5 KB")
    learner.observe(*made(100))
    assert learner.memory is not None
    assert len(learner.memory) == (5000 - learner.memory.reserved) // (6 * 4 + 50 * 4 + 16)
    assert 0 < learner.memory.reserved < 2000


def test_features_that_are_no_numbers_are_refused_before_they_are_kept() -> None:
    learner = Learner("knn", backbone=Breaking(), memory=10)
    learner.observe(torch.zeros(2, 6), torch.tensor([0, 1]))
    with pytest.raises(Diverged, match="features that are not finite"):
        learner.observe(torch.ones(1, 6), torch.tensor([0]))
    assert learner.memory is not None
    assert len(learner.memory) == 2


@pytest.mark.parametrize("options", [{"steps_per_batch": 2}, {"average": 0.9}])
def test_options_of_steps_that_are_not_taken_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="leave"):
        Learner("knn", backbone="identity", input_shape=(6,), **options)
