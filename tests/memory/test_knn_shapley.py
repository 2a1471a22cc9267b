from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.memory.knn_shapley import balanced_order, class_numbers, knn_shapley
from holdfast.memory.storage import Memory
from tests.support.shapley_by_hand import shapley_by_hand, worth


def drawn(n: int, m: int, seed: int, n_classes: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    x, points = (torch.randn(size, 2, generator=rng, dtype=torch.float64) for size in (n, m))
    y, labels = (torch.randint(n_classes, (size,), generator=rng) for size in (n, m))
    return x, y, points, labels


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 6), m=st.integers(1, 3), k=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_the_recursion_gives_the_mean_of_what_a_sample_adds_to_all_coalitions(n: int, m: int, k: int, seed: int):
    x, y, points, labels = drawn(n, m, seed)
    values = knn_shapley(x, y, eval_features=points, eval_y=labels, k=k)
    expected = [shapley_by_hand(x, y, points[j], int(labels[j]), k) for j in range(m)]
    torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float64))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 60), k=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_the_values_of_all_samples_sum_to_the_worth_of_all_together(n: int, k: int, seed: int):
    x, y, points, labels = drawn(n, 4, seed)
    sums = knn_shapley(x, y, eval_features=points, eval_y=labels, k=k).sum(dim=1)
    expected = [worth(tuple(range(n)), x, y, points[j], int(labels[j]), k) for j in range(4)]
    torch.testing.assert_close(sums, torch.tensor(expected, dtype=torch.float64))


def test_without_a_sample_of_the_right_class_nothing_is_worth_anything():
    x, _, points, labels = drawn(20, 4, 0)
    values = knn_shapley(x, torch.full((20,), 7), eval_features=points, eval_y=labels, k=3)
    assert torch.equal(values, torch.zeros(4, 20, dtype=torch.float64))


def memory_of(keys: list[tuple[int, int]], seed: int = 0) -> Memory:
    task, y = (torch.tensor(column) for column in zip(*keys, strict=True))
    memory = Memory(len(keys) + 2, seed=seed)
    batch = Batch(torch.zeros(len(keys), 1), y, task)
    memory.fit(batch)
    memory.add(batch)
    return memory


keys = st.tuples(st.integers(-1, 1), st.integers(0, 3))  # task and class


@settings(max_examples=60, deadline=None)
@given(keys=st.lists(keys, min_size=1, max_size=30), size=st.integers(0, 30), seed=st.integers(0, 99))
def test_any_first_part_of_a_balanced_order_takes_of_each_class_alike(
    keys: list[tuple[int, int]], size: int, seed: int
):
    order = balanced_order(memory_of(keys, seed)).tolist()
    assert sorted(order) == list(range(len(keys)))
    taken, stored = Counter(keys[slot] for slot in order[:size]), Counter(keys)
    most = max(taken.values(), default=0)
    assert all(taken[key] >= min(stored[key], most - 1) for key in stored)


def test_in_a_balanced_order_any_sample_of_a_class_and_any_class_can_be_first():
    memory = memory_of([(0, 0)] * 4 + [(0, 1)] * 2 + [(1, 0)] * 2)
    counts = Counter(slot for _ in range(600) for slot in balanced_order(memory)[:3].tolist())
    assert chisquare([counts[slot] for slot in range(4)]).pvalue > 0.01
    assert counts[4] + counts[5] == counts[6] + counts[7] == 600
    first = Counter(int(balanced_order(memory)[0]) for _ in range(600))
    assert set(first) == set(range(8))


@given(keys=st.lists(keys, min_size=1, max_size=30))
def test_classes_have_the_same_number_only_if_class_and_task_are_the_same(keys: list[tuple[int, int]]):
    task, y = (torch.tensor(column) for column in zip(*keys, strict=True))
    numbers = class_numbers(task, y).tolist()
    assert len(set(zip(keys, numbers, strict=True))) == len(set(keys)) == len(set(numbers))
    assert set(numbers) == set(range(len(set(keys))))
