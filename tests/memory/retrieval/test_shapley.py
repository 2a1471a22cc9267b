from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.classes import SETTINGS, Setting
from holdfast.memory.knn_shapley import balanced_order
from holdfast.memory.retrieval.shapley import Shapley
from holdfast.memory.storage import Memory
from tests.support.bare import bare
from tests.support.same import assert_same
from tests.support.shapley_by_hand import shapley_by_hand
from tests.support.toy import toy_batches

IDENTITY: Any = SimpleNamespace(embed=lambda x: x)  # a model whose features are its inputs


def batch_of(y: list[int], task: list[int], *, seed: int = 0) -> Batch:
    """Sample number i of class y[i] and task task[i]."""
    x = torch.randn(len(y), 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Batch(x, torch.tensor(y), torch.tensor(task), {"number": torch.arange(len(y))})


def memory_of(batch: Batch, seed: int = 0) -> Memory:
    memory = Memory(len(batch) + 3, seed=seed)
    memory.fit(batch)
    memory.add(batch)
    return memory


def numbers_of(picked: Batch) -> list[int]:
    return picked.extra["number"].tolist()


@pytest.mark.parametrize("seed", range(12))
def test_it_picks_the_largest_cooperative_less_adversarial_values(seed: int):
    stored = batch_of([0, 1, 0, 1, 0, 2, 3, 2, 1, 0], [0, 0, 0, 0, 0, 1, 1, 1, 0, 0], seed=seed)
    new = batch_of([2, 3], [1, 1], seed=seed + 100)
    picked = Shapley(n_candidates=3, k=2).pick(memory_of(stored, seed), 2, new, IDENTITY)

    order = balanced_order(memory_of(stored, seed)).tolist()
    old = [slot for slot in order if stored.task[slot] == 0]
    judges, candidates = old[:2], old[2:5]
    players = candidates + [slot for slot in order if stored.task[slot] == 1]
    x, y = stored.x[players], stored.y[players]

    def mean_value(samples: Batch) -> torch.Tensor:
        points = zip(samples.x, samples.y.tolist(), strict=True)
        return torch.tensor([shapley_by_hand(x, y, point, label, 2) for point, label in points]).mean(dim=0)

    scores = (mean_value(stored[judges]) - mean_value(new))[:3]
    assert numbers_of(picked) == [candidates[i] for i in scores.argsort(descending=True)[:2].tolist()]


def test_old_samples_in_the_way_of_the_new_batch_come_first():
    """The new class lies at 0; of the old samples some do too, the others far away."""
    x = torch.tensor([0.01 * i for i in range(1, 6)] + [100.0 + i for i in range(30)] + [0.2, 0.3, 0.4])[:, None]
    y = torch.tensor([0] * 35 + [1] * 3)
    stored = Batch(x, y, y, {"number": torch.arange(38)})
    new = Batch(torch.zeros(4, 1), torch.ones(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64))
    for seed in range(5):
        picked = Shapley(n_candidates=30).pick(memory_of(stored, seed), 5, new, IDENTITY)
        in_the_way = [number for number in numbers_of(picked) if number < 5]
        assert numbers_of(picked)[: len(in_the_way)] == in_the_way
        assert len(in_the_way) >= 1


@settings(max_examples=60, deadline=None)
@given(
    tasks=st.lists(st.integers(0, 2), min_size=1, max_size=25),
    new=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    size=st.integers(0, 12),
    n_candidates=st.integers(1, 8),
    old_tasks_only=st.booleans(),
    known=st.booleans(),
)
def test_it_picks_as_many_old_samples_as_wanted_none_twice(
    tasks: list[int], new: list[int], size: int, n_candidates: int, old_tasks_only: bool, known: bool
):
    if not known:
        tasks, new = [NO_TASK] * len(tasks), [NO_TASK] * len(new)
    stored = batch_of([i % 4 for i in range(len(tasks))], tasks)
    retrieval = Shapley(n_candidates=n_candidates, old_tasks_only=old_tasks_only)
    picked = numbers_of(retrieval.pick(memory_of(stored), size, batch_of([0] * len(new), new), IDENTITY))
    allowed = [i for i, task in enumerate(tasks) if not known or not old_tasks_only or task not in new]
    assert len(picked) == len(set(picked)) == min(size, len(allowed))
    assert set(picked) <= set(allowed)


@pytest.mark.parametrize("setting", SETTINGS)
def test_aser_learns_and_a_resumed_learner_goes_on_to_the_same_bits(setting: Setting):
    learners = [
        bare(
            "er",
            selection={"name": "shapley", "n_candidates": 10},
            retrieval={"name": "shapley", "n_candidates": 10},
            setting=setting,
            backbone={"name": "mlp", "hidden": [16]},
            memory=30,
            lr=0.05,
            replay_size=5,
        )
        for _ in range(2)
    ]
    losses = []
    for i, (x, y, task) in enumerate(toy_batches(setting)):
        losses.append(learners[0].observe(x, y, task))
        if i == 20:
            learners[1].load_state_dict(learners[0].state_dict())
        if i > 20:
            assert learners[1].observe(x, y, task) == losses[-1]
    assert_same(learners[0].state_dict(), learners[1].state_dict())
    x, y, task = toy_batches(setting)[0]
    assert (learners[0].predict(x, task if setting == "task" else None) == y).double().mean() >= 0.8
