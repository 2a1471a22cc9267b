from __future__ import annotations

from collections import Counter
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.memory.selection.mean_of_features import MeanOfFeatures, herd
from holdfast.memory.storage import Memory
from tests.support.same import assert_same

Key = tuple[int, int]
IDENTITY: Any = SimpleNamespace(embed=lambda x: x)  # a model whose features are its inputs
keys = st.tuples(st.integers(0, 1), st.integers(0, 2))  # task and class


def points(n: int, seed: int = 0, d: int = 3) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 1


def batch_of(x: Tensor, stream: list[Key]) -> Batch:
    task, y = (torch.tensor(column) for column in zip(*stream, strict=True))
    return Batch(x, y, task)


def offer(selection: MeanOfFeatures, memory: Memory, batch: Batch, model: Any = IDENTITY) -> None:
    batch = selection.with_extras(batch, model)
    memory.fit(batch)
    selection.update(memory, batch, model)


def offer_all(selection: MeanOfFeatures, memory: Memory, x: Tensor, stream: list[Key], size: int) -> None:
    for i in range(0, len(stream), size):
        offer(selection, memory, batch_of(x[i : i + size], stream[i : i + size]))


def stored(memory: Memory) -> dict[Key, list[tuple[float, ...]]]:
    found: dict[Key, list[tuple[float, ...]]] = {}
    for task, y, x in zip(memory.task.tolist(), memory.y.tolist(), memory.x.tolist(), strict=True):
        found.setdefault((task, y), []).append(tuple(x))
    return {key: sorted(rows) for key, rows in sorted(found.items())}


def slow_herding(f: list[Tensor], mu: Tensor, m: int) -> list[int]:
    """Algorithm 4 of iCaRL; no sample twice."""
    p: list[int] = []
    for k in range(1, min(m, len(f)) + 1):
        total = sum((f[j] for j in p), start=torch.zeros_like(mu))
        left = [i for i in range(len(f)) if i not in p]
        p.append(min(left, key=lambda i: float((mu - (f[i] + total) / k).norm())))
    return p


def rounding_decides(f: list[Tensor], mu: Tensor, m: int) -> bool:
    """Whether a sample that is left out is as near as one that is picked: both of two are, from their mean."""
    p = slow_herding(f, mu, m)
    for k in range(1, len(p) + 1):
        total = sum((f[j] for j in p[: k - 1]), start=torch.zeros_like(mu))
        best, *others = (float((mu - (f[i] + total) / k).norm()) for i in [p[k - 1], *set(range(len(f))) - set(p)])
        if any(other - best < 1e-4 for other in others):
            return True
    return False


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), m=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_herding_is_icarls_for_several_classes_at_once(sizes: list[int], m: int, seed: int):
    features = [points(n, seed + i) for i, n in enumerate(sizes)]
    means = [points(1, seed + 50 + i)[0] for i in range(len(sizes))]
    order = herd([f - mean for f, mean in zip(features, means, strict=True)], m)
    for picks, f, mean in zip(order.tolist(), features, means, strict=True):
        assert picks[: len(f)] == slow_herding(list(f), mean, m)


def test_each_pick_is_the_best_that_exhaustive_search_finds_beside_those_before():
    f, mean = points(7), points(40).mean(dim=0)
    order = herd([f - mean], 5)[0].tolist()

    def distance(chosen: tuple[int, ...]) -> float:
        return float((f[list(chosen)].mean(dim=0) - mean).norm())

    for k in range(1, 6):
        beside = [c for c in combinations(range(7), k) if set(order[: k - 1]) <= set(c)]
        assert set(order[:k]) == set(min(beside, key=distance))
    assert order[:1] == list(min(combinations(range(7), 1), key=distance))


def test_where_one_pair_has_exactly_the_mean_herding_finds_it():
    f = torch.tensor([[9.0, 9.0], [1.0, 0.0], [-1.0, 0.1], [-1.0, 0.0], [0.0, -7.0]])
    assert set(herd([f], 2)[0].tolist()) == {1, 3}


@settings(max_examples=60, deadline=None)
@given(
    stream=st.lists(keys, min_size=1, max_size=50),
    per_class=st.integers(1, 4),
    size=st.integers(1, 12),
    seed=st.integers(0, 10**6),
)
def test_it_herds_after_each_batch_what_is_stored_and_new_towards_the_mean_of_all(
    stream: list[Key], per_class: int, size: int, seed: int
):
    x = points(len(stream), seed)
    memory, selection = Memory(6 * per_class), MeanOfFeatures(per_class)
    offer_all(selection, memory, x, stream, size)

    kept: dict[Key, list[Tensor]] = {}
    seen: dict[Key, list[Tensor]] = {}
    for i in range(0, len(stream), size):
        for f, key in zip(x[i : i + size], stream[i : i + size], strict=True):
            kept.setdefault(key, []).append(f)
            seen.setdefault(key, []).append(f)
        for key in set(stream[i : i + size]):
            mu = torch.stack(seen[key]).mean(dim=0)
            assume(not rounding_decides(kept[key], mu, per_class))
            kept[key] = [kept[key][j] for j in slow_herding(kept[key], mu, per_class)]
    assert stored(memory) == {key: sorted(tuple(f.tolist()) for f in kept[key]) for key in sorted(kept)}
    for key, rows in seen.items():
        torch.testing.assert_close(selection.means[key], torch.stack(rows).mean(dim=0))
        assert selection.seen[key] == len(rows)


@settings(max_examples=80, deadline=None)
@given(
    stream=st.lists(keys, min_size=1, max_size=60),
    capacity=st.integers(1, 15),
    per_class=st.none() | st.integers(1, 20),
    size=st.integers(1, 12),
)
def test_whatever_the_room_shares_hold_and_all_that_is_stored_was_offered(
    stream: list[Key], capacity: int, per_class: int | None, size: int
):
    x = points(len(stream))
    memory, selection = Memory(capacity), MeanOfFeatures(per_class)
    for i in range(0, len(stream), size):
        offer(selection, memory, batch_of(x[i : i + size], stream[i : i + size]))
        n_seen = Counter(stream[: i + size])
        share = per_class or max(1, capacity // len(n_seen))
        found = stored(memory)
        assert len(memory) <= capacity
        assert all(len(rows) <= share for rows in found.values())
        if per_class:
            assert len(memory) == min(capacity, sum(min(share, n) for n in n_seen.values()))
        assert sorted(slot for slots in selection.slots_by_key.values() for slot in slots) == list(range(len(memory)))
        for key, slots in selection.slots_by_key.items():
            assert [(int(memory.task[s]), int(memory.y[s])) for s in slots] == [key] * len(slots)
    offered = Counter((*key, *row) for key, row in zip(stream, x.tolist(), strict=True))
    assert Counter((*key, *row) for key, rows in stored(memory).items() for row in rows) <= offered
    assert torch.equal(memory.extra("feature"), memory.x)
    assert any(key == stream[-1] for key in stored(memory)) or len(set(stream[-size:])) > capacity


def test_a_share_that_shrinks_keeps_the_samples_that_were_picked_first():
    memory, selection = Memory(12), MeanOfFeatures()
    x = points(40)
    offer_all(selection, memory, x, [(0, 0)] * 40, size=8)
    order = slow_herding(list(memory.x.clone()), x.mean(dim=0), 12)
    best_first = memory.x[order]
    for n_classes, share in ((2, 6), (3, 4), (4, 3)):
        offer(selection, memory, batch_of(points(20, seed=n_classes), [(0, n_classes)] * 20))
        assert stored(memory)[0, 0] == sorted(map(tuple, best_first[:share].tolist()))
        assert [len(rows) for rows in stored(memory).values()] == [share] * n_classes


def test_with_more_classes_than_slots_a_new_class_takes_the_slot_of_another():
    memory, selection = Memory(3), MeanOfFeatures()
    for turn in range(3):
        for y in range(5):
            offer(selection, memory, batch_of(points(2, seed=turn), [(0, y)] * 2))
            assert (0, y) in stored(memory)
    assert len(memory) == len(stored(memory)) == 3


def test_features_that_a_method_gives_are_used_and_its_other_extras_stay_beside_the_sample():
    memory, selection = Memory(3), MeanOfFeatures()
    x, feature = points(9), points(9, seed=1)
    batch = batch_of(x, [(0, 0)] * 9).with_extra(feature=feature, number=torch.arange(9))
    offer(selection, memory, batch, model=None)
    assert sorted(memory.extra("number").tolist()) == sorted(slow_herding(list(feature), feature.mean(dim=0), 3))
    assert torch.equal(memory.extra("feature"), feature[memory.extra("number")])
    assert torch.equal(memory.x, x[memory.extra("number")])


@settings(max_examples=40, deadline=None)
@given(
    first=st.lists(keys, min_size=20, max_size=40),
    then=st.lists(keys, min_size=1, max_size=40),
    per_class=st.none() | st.integers(1, 6),
)
def test_it_goes_on_after_memory_has_given_up_slots(first: list[Key], then: list[Key], per_class: int | None):
    memory, selection = Memory("1280 B"), MeanOfFeatures(per_class)  # 20 slots of 64 bytes, then 11 of 112
    for stream, width in ((first, 0), (then, 12)):
        for i in range(0, len(stream), 5):
            batch = batch_of(points(len(stream[i : i + 5])), stream[i : i + 5])
            offer(selection, memory, batch.with_extra(logits=torch.zeros(len(batch), width)))
    assert memory.capacity == 11
    assert sorted(slot for slots in selection.slots_by_key.values() for slot in slots) == list(range(len(memory)))
    for key, slots in selection.slots_by_key.items():
        assert [(int(memory.task[s]), int(memory.y[s])) for s in slots] == [key] * len(slots)


def test_a_restored_selection_goes_on_as_the_saved_one():
    stream = [(0, 0), (0, 1), (1, 0), (1, 2)] * 10
    memory, selection = Memory(9), MeanOfFeatures()
    offer_all(selection, memory, points(40), stream, size=7)
    other_memory, other = Memory(9), MeanOfFeatures()
    other_memory.load_state_dict(memory.state_dict())
    other.load_state_dict(selection.state_dict())
    for pair in ((selection, memory), (other, other_memory)):
        offer_all(*pair, points(40, seed=1), [(1, 1), (0, 1)] * 20, size=7)
    assert_same(other_memory.state_dict(), memory.state_dict())
    assert_same(other.state_dict(), selection.state_dict())
