from __future__ import annotations

from collections import defaultdict

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.batch import Batch
from holdfast.memory.selection.ring import Key, Ring
from holdfast.memory.storage import Memory
from tests.support.same import assert_same

keys = st.tuples(st.integers(0, 1), st.integers(0, 2))  # task and class


def batch_of(stream: list[Key], start: int, *, width: int = 1) -> Batch:
    """Samples of these tasks and classes, numbered on from `start` in x."""
    x = torch.arange(start, start + len(stream))[:, None]
    task, y = (torch.tensor(column, dtype=torch.int64) for column in zip(*stream, strict=True))
    return Batch(x.float(), y, task, {"logits": torch.zeros(len(x), width)})


def offer(memory: Memory, ring: Ring, stream: list[Key], *, size: int = 3, width: int = 1, start: int = 0) -> None:
    for i in range(0, len(stream), size):
        batch = batch_of(stream[i : i + size], start + i, width=width)
        memory.fit(batch)
        ring.update(memory, batch, model=None)


def kept_by_key(memory: Memory) -> dict[Key, list[int]]:
    kept = defaultdict(list)
    columns = (column.tolist() for column in (memory.task, memory.y, memory.x[:, 0].int()))
    for task, y, number in zip(*columns, strict=True):
        kept[task, y].append(number)
    return {key: sorted(numbers) for key, numbers in kept.items()}


def offered_by_key(stream: list[Key]) -> dict[Key, list[int]]:
    offered = defaultdict(list)
    for number, key in enumerate(stream):
        offered[key].append(number)
    return dict(offered)


def share_of(memory: Memory) -> dict[Key, int]:
    return {key: len(numbers) for key, numbers in kept_by_key(memory).items()}


@settings(max_examples=60, deadline=None)
@given(stream=st.lists(keys, min_size=1, max_size=60), per_class=st.integers(1, 4), size=st.integers(1, 9))
def test_exactly_the_newest_of_each_class_of_each_task_are_kept(stream: list[Key], per_class: int, size: int):
    memory, ring = Memory(6 * per_class), Ring(per_class)
    offer(memory, ring, stream, size=size)
    newest = {key: numbers[-per_class:] for key, numbers in offered_by_key(stream).items()}
    assert kept_by_key(memory) == newest


@settings(max_examples=60, deadline=None)
@given(
    stream=st.lists(keys, min_size=1, max_size=60),
    capacity=st.integers(1, 15),
    per_class=st.none() | st.integers(1, 4),
    size=st.integers(1, 9),
)
def test_whatever_the_room_what_is_kept_of_a_class_are_its_newest(
    stream: list[Key], capacity: int, per_class: int | None, size: int
):
    memory, ring = Memory(capacity), Ring(per_class)
    offer(memory, ring, stream, size=size)
    offered = offered_by_key(stream)
    for key, numbers in kept_by_key(memory).items():
        assert numbers == offered[key][-len(numbers) :]
        assert per_class is None or len(numbers) <= per_class
    share = per_class or max(1, capacity // len(offered))
    n_wanted = sum(min(share, len(numbers)) for numbers in offered.values())
    assert len(memory) >= min(capacity, n_wanted)
    assert memory.x[:, 0].max() == len(stream) - 1  # the newest sample of all is there


@settings(max_examples=40, deadline=None)
@given(
    stream=st.lists(keys, min_size=1, max_size=60),
    capacity=st.integers(6, 15),
    sizes=st.tuples(*[st.integers(1, 9)] * 2),
)
def test_it_does_not_matter_how_the_stream_is_cut(stream: list[Key], capacity: int, sizes: tuple[int, int]):
    states = []
    for size in sizes:
        memory, ring = Memory(capacity), Ring()
        offer(memory, ring, stream, size=size)
        states.append([memory.state_dict(), ring.state_dict()])
    assert_same(states[0], states[1])


def test_classes_share_memory_equally():
    memory, ring = Memory(12), Ring()
    offer(memory, ring, [(0, 0), (0, 1), (0, 2)] * 10)
    assert share_of(memory) == {(0, 0): 4, (0, 1): 4, (0, 2): 4}


def test_a_class_that_comes_later_takes_its_share_from_the_class_that_has_most():
    memory, ring = Memory(12), Ring()
    offer(memory, ring, [(0, 0)] * 20)
    assert share_of(memory) == {(0, 0): 12}
    offer(memory, ring, [(0, 1)] * 20, start=20)
    assert share_of(memory) == {(0, 0): 6, (0, 1): 6}
    offer(memory, ring, [(1, 0)] * 20, start=40)
    assert share_of(memory) == {(0, 0): 4, (0, 1): 4, (1, 0): 4}
    assert kept_by_key(memory) == {
        (0, 0): [16, 17, 18, 19],
        (0, 1): [36, 37, 38, 39],
        (1, 0): [56, 57, 58, 59],
    }


def test_a_class_with_few_samples_takes_no_more_than_it_has():
    memory, ring = Memory(12), Ring()
    offer(memory, ring, [(0, 0)] * 20)
    offer(memory, ring, [(0, 1)] * 2, start=20)
    assert share_of(memory) == {(0, 0): 10, (0, 1): 2}


def test_with_more_classes_than_slots_each_slot_has_a_class_of_its_own():
    memory, ring = Memory(3), Ring()
    offer(memory, ring, [(0, y) for y in range(5)] * 4)
    assert len(memory) == 3
    assert set(share_of(memory).values()) == {1}


def test_more_samples_a_class_than_memory_has_room_for_do_not_break_it():
    memory, ring = Memory(4), Ring(per_class=10)
    offer(memory, ring, [(0, 0)] * 9)
    assert kept_by_key(memory) == {(0, 0): [5, 6, 7, 8]}
    offer(memory, ring, [(0, 1)], start=9)
    assert share_of(memory) == {(0, 0): 3, (0, 1): 1}


def test_a_class_of_two_tasks_has_slots_in_each():
    memory, ring = Memory(10), Ring(per_class=1)
    offer(memory, ring, [(0, 5), (1, 5), (0, 5)])
    assert kept_by_key(memory) == {(0, 5): [2], (1, 5): [1]}


@settings(max_examples=40, deadline=None)
@given(
    first=st.lists(keys, min_size=1, max_size=40),
    then=st.lists(keys, min_size=1, max_size=40),
    per_class=st.none() | st.integers(1, 4),
)
def test_it_goes_on_after_memory_has_given_up_slots(first: list[Key], then: list[Key], per_class: int | None):
    memory, ring = Memory("480 B"), Ring(per_class)  # 20 slots of 24 bytes, then 12 of 40
    offer(memory, ring, first)
    offer(memory, ring, then, width=5, start=len(first))
    assert memory.capacity == 12
    assert sorted(slot for slots in ring.slots_by_key.values() for slot in slots) == list(range(len(memory)))
    for (task, y), slots in ring.slots_by_key.items():
        assert memory.task[slots].tolist() == [task] * len(slots)
        assert memory.y[slots].tolist() == [y] * len(slots)
    assert memory.x[:, 0].max() == len(first) + len(then) - 1


def test_a_restored_ring_goes_on_as_the_saved_one():
    memory, ring = Memory(7), Ring()
    offer(memory, ring, [(0, 0), (0, 1), (1, 0)] * 5)
    other_memory, other = Memory(7), Ring()
    other_memory.load_state_dict(memory.state_dict())
    other.load_state_dict(ring.state_dict())
    for pair in ((memory, ring), (other_memory, other)):
        offer(*pair, [(1, 1), (0, 1)] * 5, start=15)
    assert_same(other_memory.state_dict(), memory.state_dict())
    assert_same(other.state_dict(), ring.state_dict())
