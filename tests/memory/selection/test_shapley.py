from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.batch import Batch
from holdfast.memory.knn_shapley import balanced_order
from holdfast.memory.selection.shapley import Shapley
from holdfast.memory.storage import Memory
from tests.support.shapley_by_hand import shapley_by_hand

IDENTITY: Any = SimpleNamespace(embed=lambda x: x)  # a model whose features are its inputs


def batch_of(y: list[int], *, seed: int = 0, first: int = 0, task: int = 0) -> Batch:
    """Samples near the corner of their class, numbered on from `first`."""
    labels = torch.tensor(y)
    noise = torch.randn(len(y), 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    numbers = torch.arange(first, first + len(y))
    return Batch(labels[:, None] + noise, labels, torch.full_like(labels, task), {"number": numbers})


def offer(selection: Shapley, memory: Memory, batch: Batch) -> None:
    memory.fit(batch)
    selection.update(memory, batch, IDENTITY)


def test_a_memory_with_room_takes_every_sample():
    selection, memory = Shapley(), Memory(6)
    offer(selection, memory, batch_of([0, 1, 2]))
    offer(selection, memory, batch_of([1, 1, 1], first=3))
    assert memory.extra("number").tolist() == list(range(6))


@pytest.mark.parametrize("seed", range(12))
def test_of_candidates_and_new_samples_those_worth_most_stay(seed: int):
    selection, memory = Shapley(n_candidates=3, k=2), Memory(8, seed=seed)
    offer(selection, memory, batch_of([0, 1, 0, 1, 0, 0, 1, 1], seed=seed))
    before = Memory(8)
    before.load_state_dict(memory.state_dict())
    new = batch_of([0, 2, 1], seed=seed + 100, first=8)
    offer(selection, memory, new)

    order = balanced_order(before).tolist()
    judges, rest = order[:3], order[3:]
    candidates = [rest[i] for i in before.pick_distinct(5, 3)]
    players = torch.cat([before.x[candidates], new.x])
    players_y = torch.cat([before.y[candidates], new.y])
    points = [(before.x[slot], int(before.y[slot])) for slot in judges]
    points.append((new.x[1], 2))  # four of eight slots are no less than a third of memory, none is
    values = torch.tensor([shapley_by_hand(players, players_y, x, y, 2) for x, y in points]).sum(dim=0)
    stay = values.argsort(descending=True)[:3].tolist()
    kept = [candidates[i] for i in stay if i < 3]
    expected = {*range(8)} - {*candidates} | {*kept} | {8 + i - 3 for i in stay if i >= 3}
    assert set(memory.extra("number").tolist()) == expected


def test_a_class_that_is_not_stored_gets_in():
    selection, memory = Shapley(n_candidates=20), Memory(60)
    offer(selection, memory, batch_of([0, 1] * 30))
    for i in range(10):
        offer(selection, memory, batch_of([5] * 10, seed=i + 1, task=1))
    assert 10 <= (memory.y == 5).sum() <= 40


def test_a_mislabelled_sample_is_given_up_for_a_right_one():
    x = torch.cat([torch.linspace(0, 1, 20), torch.linspace(9, 10, 20)])[:, None]
    y = torch.tensor([0] * 20 + [1] * 20)
    y[5] = 1
    memory, selection = Memory(40), Shapley(n_candidates=20)
    offer(selection, memory, Batch(x, y, torch.zeros_like(y)))
    for i in range(10):  # it is a candidate sooner or later
        new = torch.tensor([[0.5 + i / 100], [9.5 + i / 100]])
        offer(selection, memory, Batch(new, torch.tensor([0, 1]), torch.zeros(2, dtype=torch.int64)))
    assert all((value > 5) == bool(label) for value, label in zip(memory.x[:, 0].tolist(), memory.y, strict=True))


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 14), min_size=1, max_size=6),
    capacity=st.integers(1, 12),
    n_candidates=st.integers(1, 8),
    k=st.integers(1, 4),
    seed=st.integers(0, 999),
)
def test_memory_holds_only_what_was_offered_once_each_and_is_filled_first(
    sizes: list[int], capacity: int, n_candidates: int, k: int, seed: int
):
    selection, memory, n = Shapley(n_candidates, k), Memory(capacity, seed=seed), 0
    rng = torch.Generator().manual_seed(seed)
    for i, size in enumerate(sizes):
        batch = batch_of(torch.randint(4, (size,), generator=rng).tolist(), seed=seed + i, first=n, task=i // 2)
        offer(selection, memory, batch)
        n += size
        assert len(memory) == min(capacity, n)
    numbers = Counter(memory.extra("number").tolist())
    assert set(numbers) <= set(range(n))
    assert max(numbers.values()) == 1
