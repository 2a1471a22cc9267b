"""Threads that predict, save and take snapshots while one thread observes."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast import Learner, load_learner
from holdfast.core.checkpoint import checksum_of
from holdfast.parts import names
from tests.support.same import assert_same
from tests.support.toy import toy_batches

BATCHES = toy_batches("class")[::3]
X = torch.cat([x[:2] for x, _, _ in BATCHES])
OPTIONS: dict[str, dict[str, Any]] = {"mer": {"replay_size": 2}, "randumb": {"width": 20}, "scr": {"replay_size": 5}}
VARIANTS: dict[str, dict[str, Any]] = {name: {"method": name} | OPTIONS.get(name, {}) for name in names("methods")}
VARIANTS |= {f"{name}, average": {"method": name, "average": 0.9} for name in ("er", "drr", "ewc", "scr")}
VARIANTS |= {"drr, by memory": {"method": {"name": "drr", "classifier": "memory"}, "average": 0.9}}
# Their scores are worked out from where they were worked out last, so that the last bits depend on when that was.
BY_STEPS = {"slda", "randumb"}


def learner_of(variant: str) -> Learner:
    settings = {"setting": "class", "memory": 12, "lr": 0.05, "backbone": {"name": "mlp", "hidden": [6]}}
    learner = Learner(**(settings | VARIANTS[variant]))
    learner.observe(*BATCHES[0])
    return learner


class Readers:
    """Threads that read in a loop, and the errors that they met."""

    def __init__(self, *reads: Callable[[], object]) -> None:
        self.errors: list[BaseException] = []
        self.n_reads = 0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._loop, args=(read,)) for read in reads]

    def _loop(self, read: Callable[[], object]) -> None:
        try:
            while True:
                read()
                self.n_reads += 1
                if self._over.is_set():
                    return
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def is_one_of(found: Tensor, expected: list[Tensor], *, closely: bool) -> bool:
    same: Callable[[Tensor, Tensor], bool] = torch.allclose if closely else torch.equal
    return any(found.shape == each.shape and same(found, each) for each in expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_readers_see_whole_states_and_change_no_bit(variant: str, tmp_path: Path):
    alone = learner_of(variant)
    scores, features, states = [alone.scores(X)], [alone.features(X)], {checksum_of(alone.state_dict())}
    for batch in BATCHES[1:]:
        alone.observe(*batch)
        scores.append(alone.scores(X))
        features.append(alone.features(X))
        states.add(checksum_of(alone.state_dict()))

    learner = learner_of(variant)
    seen_scores: list[Tensor] = []
    seen_features: list[Tensor] = []

    def save() -> None:
        learner.save(tmp_path / "learner")
        assert checksum_of(load_learner(tmp_path / "learner").state_dict()) in states

    with Readers(
        lambda: seen_scores.append(learner.scores(X)),
        lambda: seen_features.append(learner.features(X)),
        lambda: seen_scores.append(learner.snapshot().scores(X)),
        save,
    ) as readers:
        for batch in BATCHES[1:]:
            learner.observe(*batch)
    assert readers.errors == []
    assert_same(learner.state_dict(), alone.state_dict())
    assert all(is_one_of(each, scores, closely=variant in BY_STEPS) for each in seen_scores)
    assert all(is_one_of(each, features, closely=False) for each in seen_features)


@pytest.mark.parametrize("variant", ["er", "drr", "knn", "scr", "slda", "hedge", "drr, by memory", "mer"])
def test_threads_share_one_snapshot(variant: str):
    snapshot = learner_of(variant).snapshot()
    expected = snapshot.scores(X)
    found: list[Tensor] = []
    with Readers(*[lambda: found.append(snapshot.scores(X))] * 3) as readers:
        while len(found) < 30 and not readers.errors:
            threading.Event().wait(0.001)
    assert readers.errors == []
    assert all(torch.equal(each, expected) for each in found)


def test_threads_that_observe_take_turns():
    learner = learner_of("er")
    halves = (BATCHES[1::2], BATCHES[2::2])

    def observe_all(batches: list[Any]) -> None:
        for x, y, _ in batches:
            learner.observe(x, y, 0)

    threads = [threading.Thread(target=observe_all, args=(half,)) for half in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert learner.n_observed == len(BATCHES)
    assert len(learner.memory or ()) == 12
    assert learner.method.selection.offered == sum(len(y) for _, y, _ in BATCHES)  # type: ignore[attr-defined]


def test_a_reader_waits_for_no_more_than_the_observe_under_way():
    learner = learner_of("er")
    waiting, n_then = threading.Event(), []

    def reads_at_once() -> None:
        waiting.set()
        learner.predict(X)
        n_then.append(learner.n_observed)

    reader = threading.Thread(target=reads_at_once)

    def let_it_wait(watched: Learner) -> None:
        reader.start()
        waiting.wait()
        wait_for_the_gate(watched)

    learner.watch(let_it_wait)
    learner.observe(*BATCHES[1])
    learner._watchers.clear()
    learner.observe(*BATCHES[2])  # it lets the reader go first
    reader.join()
    assert n_then[0] in (2, 3)
    assert learner.n_observed == 3


def wait_for_the_gate(learner: Learner) -> None:
    """Return when another thread waits to read."""
    free = True
    while free:
        taken: list[bool] = []

        def look(taken: list[bool] = taken) -> None:
            taken.append(learner._gate.acquire(blocking=False))
            if taken[0]:
                learner._gate.release()

        probe = threading.Thread(target=look)
        probe.start()
        probe.join()
        free = taken[0]


def test_a_learner_can_be_copied_with_its_locks_left_behind():
    learner = learner_of("er")
    twin = copy.deepcopy(learner)
    for each in (learner, twin):
        each.observe(*BATCHES[1])
    assert_same(twin.state_dict(), learner.state_dict())
