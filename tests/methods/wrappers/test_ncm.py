from __future__ import annotations

import pytest
import torch

from holdfast import Learner
from tests.support.same import assert_same
from tests.support.toy import shown, toy_batches


def learned(method: str, **options: object) -> Learner:
    learner = Learner(method, setting="class", memory=30, lr=0.05, backbone={"name": "mlp", "hidden": [8]}, **options)
    return shown(learner, 26)


def test_scores_are_cosines_with_the_mean_of_each_classs_stored_samples() -> None:
    learner = learned("er+ncm")
    memory, model = learner.memory, learner.method.model
    assert memory is not None
    x = toy_batches("class")[0][0]
    scores = learner.scores(x)
    for c in range(6):
        stored = [model.embed(memory.x[i : i + 1])[0] for i in range(len(memory)) if int(memory.y[i]) == c]
        if not stored:
            assert (scores[:, c] == -1).all()
            continue
        mean = torch.stack([each / each.norm() for each in stored]).mean(dim=0)
        for i, feature in enumerate(model.embed(x)):
            expected = feature @ mean / (feature.norm() * mean.norm())
            assert scores[i, c].item() == pytest.approx(expected.item(), abs=1e-5)


def test_it_learns_as_the_method_does() -> None:
    one, other = learned("er+ncm"), learned("er")
    one.predict(toy_batches("class")[0][0])
    assert_same(one.method.model.state_dict(), other.method.model.state_dict())
    assert not torch.equal(one.scores(toy_batches("class")[0][0]), other.scores(toy_batches("class")[0][0]))


def test_means_are_of_the_weights_that_predict() -> None:
    learner = learned("er+mkd+ncm")
    x = toy_batches("class")[0][0]
    scores = learner.scores(x)
    learner.method._stored_means = None
    assert torch.equal(learner.scores(x), scores)
    with learner.method.teacher.inside(learner.method.model):
        assert not torch.equal(learner.method.scores(x, torch.zeros(len(x), dtype=torch.int64)), scores)
