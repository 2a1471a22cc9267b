"""What holds for every method whose state is a sum, whatever is done with the sums."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from holdfast import Learner, load_learner
from holdfast.core.checkpoint import read_checkpoint, write_checkpoint
from holdfast.methods._base import Diverged
from holdfast.methods._sums import LEAST
from tests.support.bare import bare
from tests.support.same import assert_same
from tests.support.sums import METHODS, N_CLASSES, N_FEATURES, Breaking, learned, learner_of, made, method_of

each_method = pytest.mark.parametrize("name", METHODS)


def state_of(learner: Learner) -> Any:
    return method_of(learner).sums.state_dict()


@each_method
@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 50), size=st.integers(1, 50), seed=st.integers(0, 1000))
def test_any_order_and_any_batches_lead_to_the_same_sums_and_predictions(
    name: str, n: int, size: int, seed: int
) -> None:
    x, y = made(n, seed=seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    one, other = learned(name, x, y), learned(name, x[order], y[order], size)
    sums, others = (method_of(learner).sums for learner in (one, other))
    torch.testing.assert_close(sums.sums(), others.sums(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(sums.gram(), others.gram(), rtol=1e-9, atol=1e-9)
    assert torch.equal(one.predict(x), other.predict(x))
    if name != "randumb":  # whose cosines are rounded as the processor likes
        assert_same(state_of(one), state_of(other))
        assert torch.equal(one.scores(x), other.scores(x))


@each_method
def test_two_that_learned_apart_merge_to_the_bits_of_one(name: str) -> None:
    x, y = made(60)
    both, one, two = learned(name, x, y), learned(name, x[:30], y[:30]), learned(name, x[30:], y[30:])
    kept = state_of(two)
    one.scores(x)  # so that there is something worked out before
    one.merge(two)
    assert_same(state_of(one), state_of(both))
    assert_same(state_of(two), kept)
    assert torch.equal(one.scores(x), both.scores(x))
    assert one.n_observed == both.n_observed


@each_method
def test_what_is_forgotten_leaves_the_bits_of_the_rest(name: str) -> None:
    x, y = made(60)
    rest = (y != 1).nonzero().flatten()[5:]
    gone = torch.tensor(sorted(set(range(60)) - set(rest.tolist())))
    learner, without = learned(name, x, y, 60), learned(name, x[rest], y[rest], 60)
    learner.scores(x)
    learner.forget(x[gone], y[gone])
    assert_same(state_of(learner), state_of(without))
    assert torch.equal(learner.scores(x), without.scores(x))
    assert not (learner.predict(x) == 1).any()
    assert torch.isneginf(learner.scores(x)[:, 1]).all()


@each_method
def test_a_learner_that_begins_with_a_merge_is_the_other_one(name: str) -> None:
    x, y = made(30)
    learner, other = learner_of(name), learned(name, x, y)
    learner.merge(learner_of(name))  # nothing
    learner.merge(other)
    assert torch.equal(learner.scores(x), other.scores(x))
    learner.observe(x, y)
    assert method_of(learner).sums.n_samples == 60
    assert method_of(other).sums.n_samples == 30


@each_method
def test_classes_may_come_late_and_in_another_order_on_each_machine(name: str) -> None:
    x, y = made(60)
    order = y.argsort(descending=True)
    one = learned(name, x[order], y[order], 7, n_classes=None)
    low, high = (learned(name, x[rows], y[rows], n_classes=None) for rows in (y < 2, y >= 2))
    low.predict(x)
    low.merge(high)
    assert one.method.model.head.n_classes == low.method.model.head.n_classes == N_CLASSES
    assert torch.equal(one.predict(x), low.predict(x))
    assert torch.equal(low.predict(x), learned(name, x, y).predict(x))


@each_method
def test_predicting_on_the_way_changes_nothing_but_rounding(name: str) -> None:
    x, y = made(200)
    never_asked, asked = learned(name, x, y), learner_of(name)
    for i in range(0, 200, 10):
        asked.observe(x[i : i + 10], y[i : i + 10])
        asked.predict(x[: i + 10])
        fresh = learned(name, x[: i + 10], y[: i + 10])
        scores, expected = asked.scores(x[:50]), fresh.scores(x[:50])
        torch.testing.assert_close(
            scores, expected, rtol=1e-6, atol=1e-6 * expected[expected > LEAST].abs().max().item()
        )
    assert_same(state_of(asked), state_of(never_asked))


@each_method
def test_after_a_save_the_learner_and_its_copy_score_with_the_same_bits(name: str, tmp_path: Path) -> None:
    x, y = made(100)
    learner = learned(name, x[:50], y[:50])
    learner.scores(x)
    learner.observe(x[50:70], y[50:70])
    learner.scores(x)
    learner.save(tmp_path / "learner")
    copy = load_learner(tmp_path / "learner")
    assert torch.equal(learner.scores(x), copy.scores(x))
    for each in (learner, copy):
        each.observe(x[70:], y[70:])
    assert torch.equal(learner.scores(x), copy.scores(x))


@each_method
def test_no_number_of_a_sample_is_in_the_file(name: str, tmp_path: Path) -> None:
    learner = learned(name, *made(3))
    learner.save(tmp_path / "learner")
    state = read_checkpoint(tmp_path / "learner")["method"]
    assert set(state) - {"model", "optimizer", "sums"} <= {"steps_per_batch", "average", "weight_average"} | set(
        METHODS[name]
    ) | {"width", "gamma", "ridge", "form", "distance", "power"}
    assert "waiting" not in state["sums"]


@each_method
def test_a_file_whose_sums_are_of_other_classes_is_refused(name: str, tmp_path: Path) -> None:
    learned(name, *made(30)).save(tmp_path / "learner")
    state = read_checkpoint(tmp_path / "learner")
    sums = state["method"]["sums"]
    sums["counts"] = torch.cat([sums["counts"], torch.zeros(1, dtype=torch.int64)])
    sums["sums_by_window"] = {w: torch.cat([s, s[:1] * 0]) for w, s in sums["sums_by_window"].items()}
    write_checkpoint(tmp_path / "other", state)
    with pytest.raises(ValueError, match="sums of 5 classes, but a head of 4"):
        load_learner(tmp_path / "other")


@each_method
def test_features_that_are_no_numbers_are_refused_before_they_are_kept(name: str) -> None:
    learner = learner_of(name, backbone=Breaking())
    learner.observe(torch.zeros(2, N_FEATURES), torch.tensor([0, 1]))
    before = state_of(learner)
    with pytest.raises(Diverged, match="features that are not finite"):
        learner.observe(torch.ones(1, N_FEATURES), torch.tensor([2]))
    assert_same(state_of(learner), before)


def test_what_cannot_be_merged_is_refused() -> None:
    x, y = made(30)
    learner = learned("slda", x, y)
    with pytest.raises(ValueError, match="cannot be merged with itself"):
        learner.merge(learner)
    with pytest.raises(ValueError, match="other settings"):
        learner.merge(learned("slda", x, y, seed=1))
    with pytest.raises(ValueError, match="another input_shape"):
        learner.merge(learned("slda", x[:, :5], y))
    with pytest.raises(ValueError, match=r"float32 and torch\.float16"):
        learner.merge(learned("slda", x.half(), y))
    with pytest.raises(ValueError, match="other backbones"):
        learned("slda", x, y, backbone=nn.Linear(6, 3)).merge(learned("slda", x, y, backbone=nn.Linear(6, 3)))
    before = learner.scores(x)
    assert torch.equal(learner.scores(x), before)


@pytest.mark.parametrize("method", ["er", "drr", "knn", "finetune"])
def test_a_method_that_is_no_sum_says_that_it_can_do_neither(method: str) -> None:
    x, y = made(10)
    one, two = (learned("ncm", x, y, method=method, lr=0.01) for _ in range(2))
    with pytest.raises(ValueError, match="is no sum"):
        one.merge(two)
    with pytest.raises(ValueError, match="is no sum"):
        one.forget(x, y)


def test_what_was_never_learned_cannot_be_forgotten() -> None:
    x, y = made(30)
    learner = learned("slda", x, y)
    before = state_of(learner)
    with pytest.raises(ValueError, match="fewer than to be forgotten"):
        learner.forget(x[:1].expand(31, -1), torch.zeros(31, dtype=torch.int64))
    with pytest.raises(ValueError, match="room for 4 classes"):
        learner.forget(x[:1], torch.tensor([9]))
    with pytest.raises(ValueError, match="label 9 was never learned"):
        learned("slda", x, y, n_classes=None).forget(x[:1], torch.tensor([9]))
    assert_same(state_of(learner), before)


def test_steps_and_averages_are_refused_since_nothing_is_trained() -> None:
    for option in ({"steps_per_batch": 2}, {"average": 0.9}):
        with pytest.raises(ValueError, match="takes no steps"):
            learner_of("slda", input_shape=(6,), **option)


def test_a_backbone_with_its_first_random_weights_is_warned_of() -> None:
    untrained = learner_of("slda", backbone="mlp", input_shape=(6,))
    assert "random first weights" in str(untrained.method.caution())
    assert learner_of("slda", input_shape=(6,)).method.caution() is None


@pytest.mark.parametrize("method", ["ncm", "slda", "analytic", "randumb"])
def test_a_power_is_that_of_the_sizes_of_features(method: str) -> None:
    x, y = made(60)
    x[0, :3] = 0.0
    by_hand = torch.tensor([[math.copysign(abs(value) ** 0.25, value) for value in row] for row in x.tolist()])
    powered, plain = (bare(method, backbone="identity", n_classes=N_CLASSES, power=p) for p in (0.25, 1.0))
    powered.observe(x, y)
    plain.observe(by_hand, y)
    torch.testing.assert_close(powered.scores(x), plain.scores(by_hand), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(powered.scores(x), plain.scores(x), rtol=1e-2)
