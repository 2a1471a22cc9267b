from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from holdfast.core.batch import Batch
from holdfast.memory.selection.reservoir import Reservoir
from holdfast.memory.storage import Memory
from tests.support.same import assert_same


def numbered(numbers: range | list[int]) -> Batch:
    y = torch.tensor(list(numbers), dtype=torch.int64)
    return Batch(y[:, None].float(), y, y + 100, {"note": y + 200})


def offered(n: int, *, capacity: int, seed: int, sizes: list[int]) -> tuple[Memory, Reservoir]:
    """A memory after the numbers below n were offered, in batches of these sizes in turn."""
    memory, reservoir = Memory(capacity, seed=seed), Reservoir()
    start = turn = 0
    while start < n:
        batch = numbered(range(start, min(n, start + sizes[turn % len(sizes)])))
        memory.fit(batch)
        reservoir.update(memory, batch, model=None)
        start, turn = start + len(batch), turn + 1
    return memory, reservoir


def test_everything_is_kept_until_memory_is_full():
    memory, reservoir = offered(8, capacity=8, seed=0, sizes=[3])
    assert memory.y.tolist() == list(range(8))
    assert reservoir.offered == 8


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 60),
    capacity=st.integers(1, 12),
    seed=st.integers(0, 999),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
)
def test_it_is_the_algorithm_of_vitter_however_the_stream_is_cut(n: int, capacity: int, seed: int, sizes: list[int]):
    rng = torch.Generator().manual_seed(seed)
    slots: list[int] = []
    for i in range(n):
        u = torch.rand((), generator=rng, dtype=torch.float64).item()
        if len(slots) < capacity:
            slots.append(i)
        elif (j := int(u * (i + 1))) < capacity:
            slots[j] = i

    memory, reservoir = offered(n, capacity=capacity, seed=seed, sizes=sizes)
    assert memory.y.tolist() == slots
    assert memory.x[:, 0].tolist() == slots
    assert memory.task.tolist() == [i + 100 for i in slots]
    assert memory.extra("note").tolist() == [i + 200 for i in slots]
    assert reservoir.offered == n


@pytest.mark.parametrize("size", [1, 7, 60])
def test_every_sample_of_the_stream_is_equally_likely_to_stay(size: int):
    counts: Counter[int] = Counter()
    for seed in range(200):
        memory, _ = offered(60, capacity=10, seed=10_000 * size + seed, sizes=[size])
        counts.update(memory.y.tolist())
    assert sum(counts.values()) == 200 * 10
    assert chisquare([counts[i] for i in range(60)]).pvalue > 0.01


def test_of_several_samples_for_one_slot_the_last_stays():
    memory, reservoir = Memory(1, seed=seed_of_small_numbers(3)), Reservoir()
    memory.fit(numbered([0]))
    reservoir.update(memory, numbered([0, 1, 2]), model=None)
    assert memory.y.tolist() == [2]


def seed_of_small_numbers(n: int) -> int:
    """A seed whose first n random numbers are below 1/n, so that n samples all fall into the first slot."""
    draws = (torch.rand(n, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in range(1000))
    return next(seed for seed, draw in enumerate(draws) if bool((draw < 1 / n).all()))


def test_a_restored_reservoir_goes_on_as_the_saved_one():
    memory, reservoir = offered(30, capacity=5, seed=3, sizes=[4])
    other_memory, other = Memory(5), Reservoir()
    other_memory.load_state_dict(memory.state_dict())
    other.load_state_dict(reservoir.state_dict())
    for pair in ((memory, reservoir), (other_memory, other)):
        pair[1].update(pair[0], numbered(range(30, 60)), model=None)
    assert_same(other_memory.state_dict(), memory.state_dict())
    assert_same(other.state_dict(), reservoir.state_dict())


def test_samples_stay_equally_likely_when_memory_gives_up_slots():
    counts: Counter[int] = Counter()
    for seed in range(400):
        memory, reservoir = Memory("240 B", seed=seed), Reservoir()
        for numbers, width in ((range(12), 1), (range(12, 24), 5)):  # 10 slots of 24 bytes, then 6 of 40
            batch = numbered(numbers)
            batch = Batch(batch.x, batch.y, batch.task, {"logits": torch.zeros(len(batch), width)})
            memory.fit(batch)
            reservoir.update(memory, batch, model=None)
        counts.update(memory.y.tolist())
    assert sum(counts.values()) == 400 * 6
    assert chisquare([counts[i] for i in range(24)]).pvalue > 0.01
