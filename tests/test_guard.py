"""Weights go back when accuracy on held-out samples falls, and only then."""

from __future__ import annotations

import copy
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast import Learner, load_learner
from holdfast.core.checkpoint import CorruptCheckpoint
from holdfast.guard import Guard, GuardWarning, Rollback
from holdfast.parts import names
from holdfast.practice import _weights
from holdfast.settings import LearnerSettings
from tests.support.same import assert_same
from tests.support.toy import toy_batches
from tests.support.trees import compact

SMALL: dict[str, Any] = {"backbone": {"name": "mlp", "hidden": [8]}, "memory": 30, "lr": 0.1, "standardise": False}
UNTRAINED = {"ncm", "slda", "analytic", "randumb", "knn", "hedge"}


def blobs(n: int, seed: int, n_classes: int = 2) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(n_classes, (n,), generator=rng)
    return 3 * torch.eye(n_classes, 4)[y] + 0.5 * torch.randn(n, 4, generator=rng), y


HELD_OUT = blobs(200, seed=99)


def taught(n_batches: int = 30, **settings: Any) -> Learner:
    learner = Learner("er", **(SMALL | settings))
    for i in range(n_batches):
        learner.observe(*blobs(10, seed=i))
    return learner


def poison(learner: Learner, n_batches: int = 10) -> list[str]:
    """Let a learner observe batches with the labels of the other class; return what its guard said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(n_batches):
            x, y = blobs(10, seed=1000 + i)
            learner.observe(x, 1 - y)
    return [str(each.message) for each in caught if each.category is GuardWarning]


def accuracy(learner: Learner) -> float:
    x, y = HELD_OUT
    return (learner.predict(x) == y).double().mean().item()


def guard_of(learner: Learner) -> Guard:
    assert learner.practice is not None
    assert learner.practice.guard is not None
    return learner.practice.guard


def state_of(learner: Learner) -> Any:
    return compact(learner.state_dict())


def test_weights_go_back_when_held_out_accuracy_falls() -> None:
    guarded, alone = taught(), taught()
    found: list[Rollback] = []
    guarded.guard(*HELD_OUT, every=5)
    guarded.on_rollback(found.append)
    scores = guarded.scores(HELD_OUT[0])
    said = poison(guarded, 5)
    poison(alone, 5)
    assert accuracy(alone) < 0.8
    assert torch.equal(guarded.scores(HELD_OUT[0]), scores)
    (rollback,) = found
    assert (rollback.n_observed, rollback.kept_at, guard_of(guarded).n_rolled_back) == (35, 30, 1)
    assert rollback.after == rollback.best == accuracy(guarded) > 0.95 > rollback.fallen
    assert said == [
        f"held-out accuracy fell from {rollback.best:.3f} to {rollback.fallen:.3f}: weights went back from batch 35 to "
        f"batch 30, which gives {rollback.after:.3f}"
    ]


def test_a_guard_that_never_goes_back_changes_nothing_that_is_learned() -> None:
    guarded, alone = taught(), taught()
    guarded.guard(*HELD_OUT, every=1)
    for i in range(30, 60):
        guarded.observe(*blobs(10, seed=i))
        alone.observe(*blobs(10, seed=i))
    assert guard_of(guarded).n_rolled_back == 0
    assert guard_of(guarded).kept_at == 60
    guarded.unguard()
    assert_same(state_of(guarded), state_of(alone))


def test_a_slow_fall_is_measured_from_the_best() -> None:
    guard = Guard(torch.zeros(1000, 2), torch.zeros(1000, dtype=torch.int64), torch.full((1000,), -1))
    place = torch.arange(1000)
    guard.keep({}, place < 950, 0)
    guard.keep({}, place < 920, 20)
    assert guard.best == 0.95
    assert not guard.fell(place < 890)
    assert guard.fell(place < 850)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_few_samples_raise_no_alarm(n: int) -> None:
    guard = Guard(torch.zeros(n, 2), torch.zeros(n, dtype=torch.int64), torch.full((n,), -1), drop=0.0)
    guard.right = torch.ones(n, dtype=torch.bool)
    assert not guard.fell(torch.zeros(n, dtype=torch.bool))


def test_chance_alone_raises_few_alarms() -> None:
    rng = torch.Generator().manual_seed(0)
    guard = Guard(torch.zeros(200, 2), torch.zeros(200, dtype=torch.int64), torch.full((200,), -1), drop=0.0)
    n_alarms = 0
    for _ in range(2000):  # two measurements with the same chance for each sample
        guard.right = torch.rand(200, generator=rng) < 0.8
        n_alarms += guard.fell(torch.rand(200, generator=rng) < 0.8)
    assert n_alarms <= 30  # 1 % would be 20


def test_new_classes_come_and_weights_go_back_to_a_head_that_has_them() -> None:
    learner = taught(20)
    x, y = blobs(300, seed=99, n_classes=3)
    learner.guard(x, y, every=5)
    first = guard_of(learner).best
    for i in range(20):
        learner.observe(*blobs(10, seed=100 + i, n_classes=3))
    best = guard_of(learner).best
    assert best > first + 0.2
    for i in range(4):
        more, labels = blobs(10, seed=200 + i, n_classes=3)
        learner.observe(more, (labels + 1) % 3)
    with pytest.warns(GuardWarning, match="held-out accuracy fell"):
        learner.observe(more, (labels + 1) % 3)
    assert (learner.predict(x) == y).double().mean().item() >= best - 0.05


def test_a_class_that_comes_while_accuracy_has_fallen_finds_the_good_weights() -> None:
    learner = taught(20)
    learner.guard(*HELD_OUT, every=1000)
    poison(learner)
    assert accuracy(learner) < 0.6
    x, _ = blobs(10, seed=5)
    with pytest.warns(GuardWarning, match="from batch 30 to batch 20"):
        learner.observe(x + 20, torch.full((10,), 2))
    assert guard_of(learner).kept_at == 30
    assert guard_of(learner).good["model"]["head.weight"].shape[0] == 3


def test_labels_have_names_and_some_come_later() -> None:
    called = ["calm", "storm", "fog"]
    learner = Learner("er", **SMALL)
    x, y = blobs(200, seed=1, n_classes=3)
    learner.observe(x[y == 1][:10], ["storm"] * 10)
    learner.guard(x, [called[c] for c in y.tolist()], every=10)
    low = guard_of(learner).best
    for i in range(40):
        some, classes = blobs(10, seed=50 + i, n_classes=3)
        learner.observe(some, [called[c] for c in classes.tolist()])
    assert low < 0.5 < 0.9 < guard_of(learner).best
    assert sorted(learner.classes_) == sorted(called)  # type: ignore[type-var]


@pytest.mark.parametrize("method", [*names("methods"), *(f"er+{name}" for name in names("wrappers"))])
def test_every_method_goes_back_to_the_bits_that_were_kept(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SMALL | {"setting": "class", "backbone": "identity" if method in UNTRAINED else SMALL["backbone"]}
    learner = Learner(method, **settings | ({"replay_size": 2} if method in ("mer", "hedge", "scr") else {}))
    batches = toy_batches("class")
    for x, y, task in batches[:8:2]:
        learner.observe(x, y, task)
    x, y, task = batches[13]
    learner.guard(x, y, every=1)
    learner.observe(*batches[12])
    good = compact(guard_of(learner).good)
    monkeypatch.setattr(Guard, "fell", lambda *_: True)
    with pytest.warns(GuardWarning, match="weights went back"):
        learner.observe(x, y, task)
    assert_same(compact(_weights(learner.method)) | {"model": None}, good | {"model": None})
    saved = {name: part for name, part in good["model"].items() if name != "_extra_state"}
    assert_same({name: compact(learner.method.model.state_dict()[name]) for name in saved}, saved)
    monkeypatch.undo()
    learner.observe(*batches[14])
    learner.predict(x)


@pytest.mark.parametrize("cut", [3, 5, 7])
def test_a_saved_learner_goes_on_to_the_same_bits(cut: int, tmp_path: Path) -> None:
    learner = taught()
    learner.guard(*HELD_OUT, every=5)
    poison(learner, cut)
    learner.save(tmp_path / "learner")
    again = load_learner(tmp_path / "learner")
    assert poison(again) == poison(learner) != []
    assert_same(state_of(again), state_of(learner))


def test_a_journal_goes_back_again(tmp_path: Path) -> None:
    learner = taught(journal=tmp_path)
    learner.guard(*HELD_OUT, every=5)
    poison(learner)
    learner.close_journal()
    again = Learner("er", **SMALL)
    with pytest.warns(GuardWarning):
        again.journal_into(tmp_path)
    again.close_journal()
    assert guard_of(again).n_rolled_back == guard_of(learner).n_rolled_back > 0
    assert_same(state_of(again), state_of(learner))


def test_a_callback_that_raises_leaves_every_bit() -> None:
    learner = taught()
    learner.guard(*HELD_OUT, every=5)
    poison(learner, 4)
    before = state_of(learner)

    def fail(_: Rollback) -> None:
        raise KeyboardInterrupt

    learner.on_rollback(fail)
    with pytest.raises(KeyboardInterrupt):
        poison(learner, 1)
    assert_same(state_of(learner), before)


def test_other_threads_predict_while_weights_go_back() -> None:
    learner = taught()
    learner.guard(*HELD_OUT, every=1)
    stop, wrong = threading.Event(), []

    def predict() -> None:
        while not stop.is_set():
            if not 0 <= accuracy(learner) <= 1:
                wrong.append(1)

    thread = threading.Thread(target=predict)
    thread.start()
    try:
        said = poison(learner, 15)
    finally:
        stop.set()
        thread.join()
    assert said
    assert not wrong
    assert accuracy(learner) > 0.8


def test_what_a_guard_keeps_is_counted_and_does_not_grow() -> None:
    learner = taught()
    learner.guard(*HELD_OUT, every=1)
    first = learner.memory_report()["guard"]
    weights = sum(each.nbytes for each in learner.method.parameters())
    assert first >= HELD_OUT[0].nbytes + weights
    for i in range(20):
        learner.observe(*blobs(10, seed=i))
    poison(learner)
    assert learner.memory_report()["guard"] == first
    learner.unguard()
    assert "guard" not in learner.memory_report()


def test_tasks_that_were_not_seen_count_as_wrong() -> None:
    batches = toy_batches("task")
    learner = Learner("er", **SMALL | {"setting": "task"})
    for x, y, task in batches[:12]:
        learner.observe(x, y, task)
    held = [batches[11], batches[13]]
    learner.guard(
        torch.cat([x for x, _, _ in held]),
        torch.cat([y for _, y, _ in held]),
        torch.tensor([task for *_, task in held]).repeat_interleave(10),
    )
    assert guard_of(learner).best <= 0.5
    assert not guard_of(learner).right[10:].any()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"drop": 1.0}, "drop is 1.0: give the fall"),
        ({"drop": float("nan")}, "drop is nan"),
        ({"every": 0}, "every is 0: give a number of batches"),
        ({"every": 2.5}, "every is 2.5"),
        ({"x": torch.zeros(2, 3)}, "this learner takes"),
        ({"y": [0]}, "for 2 samples"),
        ({"task": 1}, "the setting 'free' does not know it"),
    ],
)
def test_a_guard_that_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    learner = taught(3)
    before = state_of(learner)
    with pytest.raises(ValueError, match=said):
        learner.guard(**({"x": torch.zeros(2, 4), "y": [0, 1]} | given))  # type: ignore[arg-type]
    assert_same(state_of(learner), before)


def test_a_guard_wants_a_learner_that_has_learned() -> None:
    with pytest.raises(RuntimeError, match="nothing was learned yet"):
        Learner("er", input_shape=(4,)).guard(*HELD_OUT)
    with pytest.raises(ValueError, match="no guard"):
        Learner.from_settings(LearnerSettings(method="er"), input_shape=(4,)).guard(*HELD_OUT)


def test_a_state_whose_guard_was_changed_is_refused() -> None:
    learner = taught(3)
    learner.guard(*HELD_OUT)
    state = learner.state_dict()
    wrong: list[tuple[tuple[str, ...], Any]] = [
        (("x",), torch.zeros(200, 5)),
        (("x",), torch.full((200, 4), float("inf"))),
        (("y",), torch.zeros(3, dtype=torch.int64)),
        (("right",), torch.zeros(200)),
        (("drop",), -1.0),
        (("every",), 0),
        (("good",), {}),
        (("good", "model", "head.weight"), torch.zeros(2, 99)),
        (("good", "model", "head.weight"), torch.full((2, 8), float("nan"))),
    ]
    for path, value in wrong:
        changed = copy.deepcopy(state)
        at = changed["practice"]["guard"]
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = value
        with pytest.raises((ValueError, CorruptCheckpoint)):
            Learner("er", **SMALL).load_state_dict(changed)


def test_a_guard_of_a_network_of_ones_own_leaves_its_weights_alone_when_it_is_loaded(tmp_path: Path) -> None:
    def network() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Linear(4, 8)

    learner = Learner("er", backbone=network(), lr=0.1, memory=50)
    learner.observe(*blobs(10, seed=0))
    learner.guard(*HELD_OUT, every=100)
    for seed in range(1, 10):
        learner.observe(*blobs(10, seed=seed))
    learner.save(tmp_path / "learner")
    loaded = load_learner(tmp_path / "learner", backbone=network())
    assert_same(compact(loaded.state_dict()), compact(learner.state_dict()))
    x = blobs(10, seed=99)[0]
    assert torch.equal(loaded.scores(x), learner.scores(x))
