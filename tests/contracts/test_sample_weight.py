"""Weights of samples, for every method there is."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from holdfast import Learner, load_learner
from holdfast.core.batch import WEIGHT
from holdfast.core.recovery import RecoveryWarning
from holdfast.methods._base import Diverged
from holdfast.parts import find, names
from tests.support.same import assert_same
from tests.support.toy import toy_batches
from tests.support.trees import compact

METHODS = [*names("methods"), *(f"er+{name}" for name in names("wrappers"))]
KIND = {name: find("methods", name).takes_weights for name in METHODS}
SHARE = [name for name in METHODS if KIND[name] == "share"]
BATCHES = toy_batches("class")[::6]
OPTIONS: dict[str, dict[str, Any]] = {
    "mer": {"replay_size": 2},
    "hedge": {"replay_size": 5, "hidden": 8},
    "scr": {"replay_size": 5},
}
UNTRAINED = {"ncm", "slda", "analytic", "randumb", "knn", "hedge"}


def learner_of(method: str, **options: Any) -> Learner:
    backbone: Any = "identity" if method in UNTRAINED else {"name": "mlp", "hidden": [6]}
    asked: dict[str, Any] = {"setting": "class", "memory": 12, "lr": 0.05, "backbone": backbone, "standardise": False}
    return Learner(method, **(asked | OPTIONS.get(method, {}) | options))


def taught(method: str, weights: Any = None, **options: Any) -> Learner:
    """Return a learner of all batches, with `weights(batch number)` for each."""
    learner = learner_of(method, **options)
    for i, (x, y, task) in enumerate(BATCHES):
        given = {} if weights is None else {"sample_weight": weights(i)}
        learner.observe(x, y, task, **given)
    return learner


def uneven(i: int) -> Tensor:
    """Weights 1, 2, 3, 1, … of the i-th batch; all 1 in every second batch."""
    return torch.ones(10) if i % 2 else 1.0 + torch.arange(10) % 3


def state_of(learner: Learner) -> Any:
    return compact(learner.state_dict())


@pytest.mark.parametrize("method", METHODS)
def test_weights_of_one_change_no_bit(method: str) -> None:
    plain, weighted = taught(method), taught(method, lambda i: [1.0] * 10 if i % 2 else 1.0)
    assert_same(state_of(weighted), state_of(plain))


@pytest.mark.parametrize("method", METHODS)
def test_a_sample_of_weight_zero_is_as_if_it_had_not_come(method: str) -> None:
    with_zeros, without = learner_of(method), learner_of(method)
    kept = torch.arange(10) % 4 != 1
    for x, y, task in BATCHES:
        with_zeros.observe(x, y.tolist(), task, sample_weight=kept)
        without.observe(x[kept], y[kept].tolist(), task)
        assert with_zeros.observe(x, y, task, sample_weight=0.0) == 0.0
    assert_same(state_of(with_zeros), state_of(without))


@pytest.mark.parametrize("method", [name for name in METHODS if "count" in KIND[name]])
def test_a_count_of_two_is_the_sample_given_twice(method: str) -> None:
    counted, repeated = taught(method, uneven), learner_of(method)
    for i, (x, y, task) in enumerate(BATCHES):
        rows = torch.arange(10).repeat_interleave(uneven(i).long())
        repeated.observe(x[rows], y[rows], task)
    found, expected = state_of(counted), state_of(repeated)
    del found["practice"]["watch"], expected["practice"]["watch"]  # inputs are looked at as they came
    assert_same(found, expected)


@pytest.mark.parametrize("method", [name for name in METHODS if KIND[name] == "no"])
def test_a_method_that_takes_no_weights_says_so_and_learns_nothing(method: str) -> None:
    learner = taught(method)
    before = state_of(learner)
    x, y, task = BATCHES[-1]
    with pytest.raises(ValueError, match="takes no sample weights but 0 and 1"):
        learner.observe(x, y, task, sample_weight=[0.5] * 10)
    assert_same(state_of(learner), before)


@pytest.mark.parametrize("method", ["slda", "knn"])
def test_a_count_is_whole_and_bounded(method: str) -> None:
    learner = learner_of(method)
    x, y, task = BATCHES[0]
    for weights, reason in (([0.5] * 10, "give whole numbers"), ([1e9] * 10, "more than 10,000 samples")):
        with pytest.raises(ValueError, match=reason):
            learner.observe(x, y, task, sample_weight=weights)
    assert learner.n_observed == 0


@pytest.mark.parametrize("method", SHARE)
def test_a_weight_changes_what_is_learned(method: str) -> None:
    assert not _same_scores(taught(method), taught(method, uneven))


@pytest.mark.parametrize("method", [*SHARE, "hedge"])
def test_a_saved_learner_goes_on_to_the_same_bits(method: str, tmp_path: Path) -> None:
    learner = learner_of(method)
    for i, (x, y, task) in enumerate(BATCHES):
        learner.observe(x, y, task, sample_weight=uneven(i) / 2)
        if i == 1:
            learner.save(tmp_path / "learner")
            again = load_learner(tmp_path / "learner")
        elif i > 1:
            again.observe(x, y, task, sample_weight=uneven(i) / 2)
    assert_same(state_of(again), state_of(learner))


@pytest.mark.parametrize("selection", names("selections"))
def test_memory_keeps_weights_with_every_selection(selection: str) -> None:
    learner = taught("er", uneven, selection=selection)
    memory = learner.memory
    assert memory is not None
    by_sample = {tuple(x): w for i, (xs, *_) in enumerate(BATCHES) for x, w in zip(xs.tolist(), uneven(i), strict=True)}
    assert memory.weight is not None
    assert memory.weight.tolist() == [by_sample[tuple(x)] for x in memory.x.tolist()]


@pytest.mark.parametrize("method", ["er", "der", "drr", "hedge"])
@pytest.mark.parametrize("weights", [None, [0.5] * 10])
def test_the_first_weights_that_go_wrong_leave_every_bit(
    method: str, weights: list[float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = taught(method, memory="8 KB")
    before = state_of(learner)
    x, y, task = BATCHES[-1]
    selection = type(learner.method.selection)

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(selection, "update", fail)
        with pytest.raises(KeyboardInterrupt):
            learner.observe(x, y, task, sample_weight=weights)
    assert_same(state_of(learner), before)
    learner.observe(x, y, task, sample_weight=[0.5] * 10)
    assert learner.memory is not None
    assert learner.memory.nbytes <= 8000


def test_a_step_goes_down_the_weighted_mean_loss() -> None:
    x, y, _ = BATCHES[0]
    weights = torch.tensor([0.5, 2.0, 0.25, 1.0, 4.0, 1.0, 1.0, 0.125, 1.0, 1.0])
    learner = Learner("finetune", lr=0.1, n_classes=2, input_shape=x.shape[1:], standardise=False, setting="free")
    before = {name: weight.clone() for name, weight in learner.method.model.named_parameters()}
    scores = learner.method.model(x)
    loss = sum(
        w * -scores[i].log_softmax(dim=0)[c] for i, (w, c) in enumerate(zip(weights, y.tolist(), strict=True))
    ) / len(x)
    gradients = torch.autograd.grad(loss, list(learner.method.model.parameters()))  # type: ignore[arg-type]
    assert learner.observe(x, y, sample_weight=weights) == pytest.approx(float(loss.detach()))  # type: ignore[union-attr]
    for (name, after), gradient in zip(learner.method.model.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(after.detach(), before[name] - 0.1 * gradient)


def test_the_weight_of_a_single_sample_counts() -> None:
    x, y, _ = BATCHES[0]
    moved = []
    for weight in (1.0, 0.25):
        learner = Learner("finetune", lr=0.1, n_classes=2, input_shape=x.shape[1:], standardise=False)
        before = learner.method.model.head.weight.detach().clone()
        learner.observe(x[:1], y[:1], sample_weight=weight)
        moved.append(learner.method.model.head.weight.detach() - before)
    torch.testing.assert_close(moved[1], 0.25 * moved[0])


def test_replay_honours_the_weight_of_a_stored_sample() -> None:
    x, y, _ = BATCHES[0]
    learner = Learner("er", lr=0.1, n_classes=2, replay_size=1, memory=1, input_shape=x.shape[1:], standardise=False)
    learner.observe(x[:1], y[:1], sample_weight=0.25)
    model = learner.method.model
    one = (x[:1], torch.tensor([-1]))
    losses = -model.masked(model(one[0]), one[1]).log_softmax(dim=1)[0, y[0]]
    assert learner.observe(x[:1], y[:1]) == pytest.approx(1.25 * losses.item())


def test_a_count_of_hedge_may_have_a_fraction() -> None:
    x, y, task = BATCHES[0]
    learner = learner_of("hedge")
    learner.observe(x[:2], y[:2], task, sample_weight=[2.5, 0.5])
    assert learner.memory is not None
    torch.testing.assert_close(learner.memory.weight, torch.tensor([2.5 / 3] * 3 + [0.5]))


@pytest.mark.parametrize("method", ["er", "slda", "hedge"])
@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ([math.nan] + [1.0] * 9, r"sample_weight is NaN, negative or above 1e\+15 in rows 0: mend it"),
        ([1.0] * 9 + [math.inf], "in rows 9"),
        ([1.0] * 9 + [1e39], "in rows 9"),
        ([-1.0] * 10, r"in rows 0, 1, 2, 3, 4 and 5 more"),
        ([1.0] * 9, r"sample_weight has shape \(9,\) for 10 samples: give \(10,\), or one number"),
        ([[1.0]] * 10, r"sample_weight has shape \(10, 1\)"),
        (["heavy"] * 10, "sample_weight cannot be read as numbers"),
    ],
)
def test_weights_that_are_none_are_refused(method: str, weights: Any, reason: str) -> None:
    learner = taught(method)
    before = state_of(learner)
    x, y, task = BATCHES[-1]
    with pytest.raises(ValueError, match=reason):
        learner.observe(x, y, task, sample_weight=weights)
    assert_same(state_of(learner), before)


def test_a_weight_so_large_that_the_step_overflows_leaves_every_bit() -> None:
    learner = learner_of("er", recover=False, lr=1e25, setting="free", n_classes=2, input_shape=BATCHES[0][0].shape[1:])
    before = state_of(learner)
    x, y, _ = BATCHES[0]
    with pytest.raises(Diverged):
        learner.observe(x, y, sample_weight=1e15)
    assert_same(state_of(learner), before)


def test_labels_that_are_no_classes_and_have_no_weight_are_not_numbered() -> None:
    learner = Learner("er", input_shape=(2,))
    with pytest.raises(ValueError, match="y has 1 entries for 2 samples"):
        learner.observe([[0.0, 1.0], [1.0, 0.0]], ["a"], sample_weight=[1.0, 0.0])
    learner.observe([[0.0, 1.0], [1.0, 0.0]], np.array(["a", "b"]), sample_weight=[0.0, 3.0])
    assert learner.classes_ == ["b"]


def test_large_weights_are_no_sign_of_learning_that_runs_away(recwarn: pytest.WarningsRecorder) -> None:
    learner = learner_of("er", lr=1e-6)
    for x, y, task in BATCHES * 3:
        learner.observe(x, y, task, sample_weight=1000.0)
    for x, y, task in BATCHES:
        learner.observe(x, y, task)
    assert not [each for each in recwarn if each.category is RecoveryWarning]


@pytest.mark.parametrize("method", ["er", "slda", "hedge"])
def test_a_journal_learns_the_same_weights_again(method: str, tmp_path: Path) -> None:
    learner = learner_of(method, journal=tmp_path)
    x, y, task = BATCHES[0]
    learner.observe(x, y, task, sample_weight=uneven(0))
    learner.predict(x[:2], ids=["a", "b"])
    with pytest.raises(ValueError, match="NaN"):
        learner.observe(x, y, task, sample_weight=math.nan)
    learner.label(["b"], [int(y[1])], task, sample_weight=2)
    learner.label(["a"], [int(y[0])], task, sample_weight=[0])
    learner.close_journal()
    again = learner_of(method, journal=tmp_path)
    again.close_journal()
    assert len(learner.practice.waiting) == 0  # type: ignore[union-attr]
    assert_same(state_of(again), state_of(learner))


def test_a_state_with_weights_that_are_none_is_refused() -> None:
    learner = taught("er", uneven)
    state = learner.state_dict()
    for bad in (torch.zeros(12), torch.full((12,), math.nan), torch.ones(12, dtype=torch.int64), torch.ones(12, 2)):
        state["method"]["memory"]["columns"][f"extra.{WEIGHT}"] = bad
        with pytest.raises(ValueError, match="weight"):
            learner_of("er").load_state_dict(state)


def test_the_page_names_what_each_method_takes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "practice.md").read_text()
    rows = re.findall(r"^\| `(no|share|count|count and share)` \| ([^|]*) \|", page, re.M)
    said = {method: kind for kind, methods in rows for method in re.findall(r"`(\w+)`", methods)}
    assert said == {name: KIND[name] for name in names("methods")}


def _same_scores(one: Learner, two: Learner) -> bool:
    x = BATCHES[0][0]
    return torch.equal(one.scores(x), two.scores(x))
