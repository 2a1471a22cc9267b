from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from holdfast import Learner
from holdfast.core.batch import Batch
from holdfast.methods.wrappers._base import Wrapper
from holdfast.parts import Unknown, find, names
from tests.support.by_hand import built, weights
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model
from tests.support.toy import toy_batches


def test_a_batch_is_learned_several_times_beside_other_stored_samples() -> None:
    method = built(find("methods", "er+rar"), small_model(), repeats=3, replay_size=4)
    for seed in range(5):
        method.observe(small_batch(6, seed=seed))
    seen, steps = [], []
    pick, step = method.retrieval.pick, method.optimizer.step
    method.retrieval.pick = lambda *given: seen.append(pick(*given)) or seen[-1]
    method.optimizer.step = lambda: steps.append(step())
    method.observe(small_batch(6, seed=5))
    assert len(steps) == method.steps_a_batch == 3
    assert len(seen) == 3
    assert len({tuple(old.y.tolist()) + tuple(old.x.flatten().tolist()) for old in seen}) == 3
    assert len(method.memory) == 36  # each sample once


def test_views_are_drawn_anew_each_time() -> None:
    method = built(find("methods", "er+rar"), small_model(), repeats=3, augmentation="contrastive")
    learned = []
    loss = method.model.loss
    method.model.loss = lambda batch: learned.append(batch.x) or loss(batch)
    batch = small_batch(6)
    method.observe(batch)
    assert len({tuple(x.flatten().tolist()) for x in learned}) == 3
    assert_same(method.memory.x, batch.x)


def test_without_views_it_is_that_many_steps_a_batch() -> None:
    repeated = built(find("methods", "er+rar"), small_model(), repeats=4, augmentation="none")
    steps = built(find("methods", "er"), small_model(), steps_per_batch=4)
    for seed in range(4):
        batch: Batch = small_batch(6, seed=seed)
        repeated.observe(batch)
        steps.observe(batch)
    torch.testing.assert_close(weights(repeated.model), weights(steps.model), rtol=0, atol=0)


def test_it_goes_around_the_methods_that_the_authors_improve() -> None:
    for method in ("er", "scr", "agem", "gec"):
        learner = Learner(f"{method}+rar", repeats=2, setting="class", memory=30, backbone="identity")
        for x, y, task in toy_batches("class")[:3]:
            learner.observe(x, y, task)
        assert 0 < len(learner.memory or ()) <= 30


@pytest.mark.parametrize("method", ["mer", "knn", "hedge"])
def test_it_refuses_a_method_that_takes_other_steps(method: str) -> None:
    with pytest.raises(Unknown, match="beside replayed samples"):
        Learner(f"{method}+rar", input_shape=(2,))


def test_no_wrapper_takes_an_option_of_a_method_for_its_own() -> None:
    for method in names("methods"):
        for wrapper in names("wrappers"):
            assert "both have the option" not in find("wrappers", wrapper).refusal(find("methods", method))


def test_a_wrapper_with_an_option_of_the_method_is_refused() -> None:
    @dataclass(kw_only=True, eq=False)
    class Weighing(Wrapper):
        weighting: float = 1.0

    assert Weighing.refusal(find("methods", "er")) == "both have the option weighting"
