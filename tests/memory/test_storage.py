from __future__ import annotations

import copy
from collections import Counter
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy.stats import chisquare
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.memory.storage import Memory, parse_bytes
from tests.support.same import assert_same


def numbered(*numbers: int) -> Batch:
    """A batch whose sample i has y = i, and x, task and the extra `note` to be told from it."""
    y = torch.tensor(numbers, dtype=torch.int64)
    return Batch(torch.stack([y, -y], dim=1).float(), y, y + 200, {"note": y + 300})


def numbers_of(batch: Batch) -> list[int]:
    """The numbers of the samples; fails if the columns are not of the same samples."""
    assert_same(vars_of(batch), vars_of(numbered(*batch.y.tolist())))
    return batch.y.tolist()


def vars_of(batch: Batch) -> dict[str, Tensor | dict[str, Tensor]]:
    return {"x": batch.x, "y": batch.y, "task": batch.task, "extra": batch.extra}


def memory_of(*numbers: int, capacity: int = 10, seed: int = 0) -> Memory:
    memory = Memory(capacity, seed=seed)
    memory.fit(numbered(*numbers))
    memory.add(numbered(*numbers))
    return memory


# Slots.


class MemoryAgainstList(RuleBasedStateMachine):
    """A memory does what a list of numbers does."""

    @initialize(capacity=st.integers(1, 8))
    def begin(self, capacity: int) -> None:
        self.capacity = capacity
        self.memory = Memory(capacity, seed=1)
        self.memory.fit(numbered(0))
        self.stored: list[int] = []
        self.next = 1

    def fresh(self, n: int) -> list[int]:
        self.next += n
        return list(range(self.next - n, self.next))

    @rule(n=st.integers(0, 9))
    def add(self, n: int) -> None:
        numbers = self.fresh(n)
        if len(self.stored) + n > self.capacity:
            with pytest.raises(ValueError, match=f"{n} samples for {self.capacity - len(self.stored)} free slots"):
                self.memory.add(numbered(*numbers))
            return
        slots = self.memory.add(numbered(*numbers))
        assert slots == range(len(self.stored), len(self.stored) + n)
        self.stored += numbers

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        slots = data.draw(st.permutations(range(len(self.stored))).flatmap(lambda p: st.just(p[: self.next % 4])))
        numbers = self.fresh(len(slots))
        self.memory.write(slots, numbered(*numbers))
        for slot, number in zip(slots, numbers, strict=True):
            self.stored[slot] = number

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        slot = data.draw(st.integers(0, len(self.stored) - 1))
        self.memory.remove(slot)
        self.stored[slot] = self.stored[-1]
        self.stored.pop()

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        slots = data.draw(st.lists(st.integers(0, len(self.stored) - 1), min_size=1, max_size=5))
        expected = [self.stored[slot] for slot in slots]
        assert numbers_of(self.memory[slots]) == numbers_of(self.memory[torch.tensor(slots)]) == expected

    @rule(size=st.integers(0, 10))
    def draw(self, size: int) -> None:
        drawn = numbers_of(self.memory.draw(size))
        assert len(drawn) == min(size, len(self.stored))
        assert len(set(drawn)) == len(drawn)
        assert set(drawn) <= set(self.stored)

    @rule()
    def save_and_restore(self) -> None:
        restored = Memory(self.capacity, seed=9)
        restored.load_state_dict(copy.deepcopy(self.memory.state_dict()))
        assert_same(restored.state_dict(), self.memory.state_dict())
        self.memory = restored

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        assert len(self.memory) == len(self.stored)
        assert self.memory.capacity == self.capacity
        assert numbers_of(self.memory[:]) == self.stored
        assert self.memory.x[:, 0].tolist() == self.memory.y.tolist() == self.stored
        assert self.memory.task.tolist() == [n + 200 for n in self.stored]
        assert self.memory.extra("note").tolist() == [n + 300 for n in self.stored]


TestMemoryAgainstList = MemoryAgainstList.TestCase
TestMemoryAgainstList.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


@pytest.mark.parametrize(
    ("slots", "n_samples"), [([3], 1), ([-1], 1), ([0, 1], 1), ([0], 2), ([], 1)], ids=lambda value: str(value)
)
def test_writing_anywhere_but_over_one_sample_each_is_refused(slots: list[int], n_samples: int):
    memory = memory_of(5, 6, 7)
    with pytest.raises(ValueError, match="give one filled slot a sample"):
        memory.write(slots, numbered(*range(n_samples)))
    assert numbers_of(memory[:]) == [5, 6, 7]


@pytest.mark.parametrize("slot", [3, -1])
def test_removing_what_is_not_there_is_refused(slot: int):
    memory = memory_of(5, 6, 7)
    with pytest.raises(ValueError, match=f"no sample in slot {slot}: 3 are filled"):
        memory.remove(slot)
    assert numbers_of(memory[:]) == [5, 6, 7]


@given(n=st.integers(1, 40), data=st.data())
@settings(max_examples=50, deadline=None)
def test_removing_several_is_removing_one_after_the_other_from_the_highest(n: int, data: st.DataObject):
    slots = data.draw(st.lists(st.integers(0, n - 1), unique=True))
    at_once, in_turn = memory_of(*range(n), capacity=40), memory_of(*range(n), capacity=40)
    at_once.remove_all(slots)
    for slot in sorted(slots, reverse=True):
        in_turn.remove(slot)
    assert numbers_of(at_once[:]) == numbers_of(in_turn[:])


def test_removing_several_of_which_one_is_not_there_is_refused():
    memory = memory_of(5, 6, 7)
    with pytest.raises(ValueError, match="3 are filled"):
        memory.remove_all([0, 3])
    assert numbers_of(memory[:]) == [5, 6, 7]


def test_reading_no_slot_gives_no_sample():
    assert numbers_of(memory_of(5, 6)[[]]) == []


def test_what_is_read_is_a_copy():
    memory = memory_of(5, 6)
    memory[:].x.zero_()
    memory.draw(2).y.zero_()
    assert numbers_of(memory[:]) == [5, 6]


def test_what_is_stored_is_a_copy():
    batch = numbered(5, 6)
    memory = Memory(3)
    memory.fit(batch)
    memory.add(batch)
    memory.write([1], batch[[0]])
    batch.x.zero_()
    batch.y.zero_()
    assert numbers_of(memory[:1]) == [5]
    assert memory.x[1].tolist() == [5, -5]


# Size.


def images(dtype: torch.dtype, **extra: Tensor) -> Batch:
    return Batch(torch.zeros(1, 3, 32, 32).to(dtype), torch.zeros(1).long(), torch.zeros(1).long(), extra)


@pytest.mark.parametrize(
    ("batch", "bytes_per_sample", "capacity"),
    [
        (images(torch.uint8), 3 * 32 * 32 + 8 + 8, 323),
        (images(torch.float32), 4 * 3 * 32 * 32 + 8 + 8, 81),
        (images(torch.uint8, logits=torch.zeros(1, 10)), 3 * 32 * 32 + 8 + 8 + 4 * 10, 319),
        (images(torch.uint8, a=torch.zeros(1).bool(), b=torch.zeros(1, 2, 2).double()), 3088 + 1 + 32, 320),
    ],
)
def test_a_megabyte_holds_as_many_samples_as_fit_with_all_their_columns(
    batch: Batch, bytes_per_sample: int, capacity: int
):
    memory = Memory("1 MB")
    memory.fit(batch)
    assert memory.bytes_per_sample == bytes_per_sample
    assert memory.capacity == capacity
    assert memory.nbytes == capacity * bytes_per_sample == stored_bytes(memory)


def stored_bytes(memory: Memory) -> int:
    """What torch has allocated for it."""
    return sum(column.untyped_storage().nbytes() for column in memory.columns.values())


def test_bytes_stay_bytes_and_take_a_quarter_of_floats():
    sizes = {}
    for dtype in (torch.uint8, torch.float32):
        memory = Memory(100)
        memory.fit(images(dtype))
        memory.add(images(dtype))
        assert memory.x.dtype == memory[:].x.dtype == dtype
        sizes[dtype] = memory.columns["x"].untyped_storage().nbytes()
    assert 4 * sizes[torch.uint8] == sizes[torch.float32] == 100 * 4 * 3 * 32 * 32


@settings(max_examples=50, deadline=None)
@given(
    budget=st.integers(30, 3000),
    n_inputs=st.integers(1, 5),
    dtype=st.sampled_from([torch.uint8, torch.float16, torch.float32]),
    widths=st.lists(st.integers(1, 12), min_size=1, max_size=5).map(sorted),
    n_offered=st.integers(1, 12),
    beside=st.integers(0, 50),
)
def test_a_budget_in_bytes_is_kept_and_used(
    budget: int, n_inputs: int, dtype: torch.dtype, widths: list[int], n_offered: int, beside: int
):
    memory = Memory(f"{budget} B")
    for width in widths:
        y = torch.arange(n_offered)
        batch = Batch(torch.zeros(n_offered, n_inputs, dtype=dtype), y, y, {"logits": torch.ones(n_offered, width)})
        bytes_per_slot = n_inputs * dtype.itemsize + 8 + 8 + 4 * width + beside
        if budget < bytes_per_slot:
            with pytest.raises(ValueError, match=f"{budget} bytes holds no sample of {bytes_per_slot} bytes"):
                memory.fit(batch, beside)
            return
        memory.fit(batch, beside)
        assert memory.nbytes == stored_bytes(memory)
        assert budget - bytes_per_slot < memory.nbytes + memory.capacity * beside <= budget
        memory.add(batch[: memory.capacity - len(memory)])


def test_a_save_from_before_bytes_beside_slots_were_counted_has_none():
    memory, loaded = Memory("240 B"), Memory("240 B")
    memory.fit(numbered(0), beside=8)
    memory.add(numbered(1, 2))
    state = memory.state_dict()
    loaded.load_state_dict(state)
    assert (loaded.capacity, loaded.beside) == (6, 8)
    del state["beside"]
    loaded.load_state_dict(state)
    assert (loaded.capacity, loaded.beside) == (7, 0)
    with pytest.raises(ValueError, match=r"Memory\.beside was saved as -24"):
        loaded.load_state_dict(state | {"beside": -24})


def test_before_the_first_sample_nothing_is_allocated():
    memory = Memory("5 MB")
    assert (len(memory), memory.capacity, memory.nbytes) == (0, 0, 0)


def test_a_memory_larger_than_the_machine_is_refused_before_it_is_allocated():
    memory = Memory(10**15)
    with pytest.raises(MemoryError, match=r"on a machine that has .*give a smaller capacity"):
        memory.fit(images(torch.uint8))
    assert memory.columns == {}


@pytest.mark.parametrize("capacity", [0, -3])
def test_a_memory_of_no_samples_is_refused(capacity: int):
    with pytest.raises(ValueError, match=f"{capacity} samples holds nothing: give 1 or more"):
        Memory(capacity)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("5 MB", 5_000_000), ("64 KiB", 65_536), ("1.5kb", 1_500), ("2GiB", 2 * 2**30), ("7 B", 7), (" 1 GB ", 10**9)],
)
def test_a_size_is_read_with_its_unit(text: str, n_bytes: int):
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["5", "", "MB", "-5 MB", "5 MB of it", "5 TB", "five MB", "nan MB", "1e3 MB", "5 iB"])
def test_a_text_that_is_no_size_is_refused(text: str):
    with pytest.raises(ValueError, match=r"is no size: give samples as a number \(1000\), or bytes with a unit"):
        parse_bytes(text)


def test_a_size_with_too_many_digits_is_refused():
    with pytest.raises(ValueError, match="is no size"):
        parse_bytes("9" * 400 + " GB")


# Extras that grow, and samples that do not fit.


def with_logits(*numbers: int, width: int) -> Batch:
    """Sample i with i in all its logits."""
    batch = numbered(*numbers)
    return batch.with_extra(logits=batch.y[:, None].expand(-1, width).float())


def test_an_extra_that_has_grown_is_widened_with_zeros():
    memory = Memory(4)
    memory.fit(with_logits(1, 2, width=2))
    memory.add(with_logits(1, 2, width=2))
    memory.fit(with_logits(3, width=3))
    memory.add(with_logits(3, width=3))
    assert memory.extra("logits").tolist() == [[1, 1, 0], [2, 2, 0], [3, 3, 3]]
    assert memory.y.tolist() == [1, 2, 3]
    assert memory.capacity == 4


def test_a_memory_in_bytes_gives_up_whole_samples_when_an_extra_grows():
    memory = Memory("400 B")  # a sample has 32 bytes of numbers, and 4 for each logit
    memory.fit(with_logits(0, width=2))
    memory.add(with_logits(*range(10), width=2))
    assert memory.capacity == 400 // 40
    memory.fit(with_logits(0, width=12))
    assert len(memory) == memory.capacity == 400 // 80
    kept = memory.y.tolist()
    assert len(set(kept)) == 5
    assert set(kept) < set(range(10))
    assert memory.x[:, 0].tolist() == kept
    assert memory.extra("logits").tolist() == [[i] * 2 + [0] * 10 for i in kept]


def test_an_extra_too_wide_for_the_budget_is_refused_and_changes_nothing():
    memory = Memory("100 B")
    memory.fit(with_logits(1, width=2))
    memory.add(with_logits(1, 2, width=2))
    before = copy.deepcopy(memory.state_dict())
    with pytest.raises(ValueError, match="a memory of 100 bytes holds no sample of 112 bytes"):
        memory.fit(with_logits(1, width=20))
    assert_same(memory.state_dict(), before)
    assert memory.nbytes <= 100


def test_the_samples_given_up_are_any_with_equal_chance():
    counts: Counter[int] = Counter()
    for seed in range(400):
        memory = Memory("400 B", seed=seed)
        memory.fit(with_logits(0, width=2))
        memory.add(with_logits(*range(10), width=2))
        memory.fit(with_logits(0, width=12))
        counts.update(memory.y.tolist())
    assert chisquare([counts[i] for i in range(10)]).pvalue > 0.01


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            Batch(torch.zeros(1, 3), *[torch.zeros(1).long()] * 2, {"note": torch.zeros(1).long()}),
            r"x .*\(3,\).*\(2,\)",
        ),
        (
            Batch(torch.zeros(1, 2).half(), *[torch.zeros(1).long()] * 2, {"note": torch.zeros(1).long()}),
            "x is .*float16",
        ),
        (Batch(torch.zeros(1, 2), *[torch.zeros(1).long()] * 2), "remember the same extras with every sample"),
        (numbered(1).with_extra(more=torch.zeros(1)), "remember the same extras with every sample"),
        (numbered(1).with_extra(note=torch.zeros(1, 2).long()), r"extra.note .*\(2,\).*\(\)"),
    ],
)
def test_samples_unlike_those_stored_are_refused(batch: Batch, message: str):
    memory = memory_of(5, 6)
    before = copy.deepcopy(memory.state_dict())
    with pytest.raises(ValueError, match=message):
        memory.fit(batch)
    assert_same(memory.state_dict(), before)


def test_an_extra_that_has_become_narrower_is_refused():
    memory = Memory(4)
    memory.fit(with_logits(1, width=3))
    with pytest.raises(ValueError, match=r"extra\.logits of a sample has shape \(2,\), but memory keeps \(3,\)"):
        memory.fit(with_logits(1, width=2))


# Drawing.


def test_fewer_samples_than_asked_for_are_all_drawn():
    assert sorted(numbers_of(memory_of(5, 6, 7).draw(10))) == [5, 6, 7]


def test_a_draw_among_slots_stays_among_them():
    memory = memory_of(*range(10))
    among = torch.tensor([8, 1, 5])
    assert sorted(numbers_of(memory.draw(3, among))) == [1, 5, 8]
    assert sorted(numbers_of(memory.draw(9, among))) == [1, 5, 8]
    assert {numbers_of(memory.draw(1, among))[0] for _ in range(50)} == {1, 5, 8}
    assert numbers_of(memory.draw(3, among[:0])) == []


def test_every_set_of_slots_is_equally_likely():
    memory = Memory(1)
    counts = Counter(frozenset(memory.pick_distinct(6, 3)) for _ in range(4000))
    sets = [frozenset(c) for c in combinations(range(6), 3)]
    assert set(counts) == set(sets)
    assert chisquare([counts[s] for s in sets]).pvalue > 0.01


def test_every_sample_is_equally_likely_to_be_drawn():
    memory = memory_of(*range(10), seed=5)
    counts = Counter(number for _ in range(2000) for number in memory.draw(3).y.tolist())
    assert chisquare([counts[i] for i in range(10)]).pvalue > 0.01


@settings(max_examples=50, deadline=None)
@given(n=st.integers(0, 10**12), size=st.integers(0, 20), seed=st.integers(0, 99))
def test_picks_are_different_and_cost_one_random_number_each(n: int, size: int, seed: int):
    size = min(n, size)
    memory, rng = Memory(1, seed=seed), torch.Generator().manual_seed(seed)
    picked = memory.pick_distinct(n, size)
    assert len(set(picked)) == len(picked) == size
    assert all(0 <= number < n for number in picked)
    torch.rand(size, generator=rng, dtype=torch.float64)
    assert torch.equal(memory.rng.get_state(), rng.get_state())


def test_draws_repeat_with_the_seed_and_not_with_another():
    draws = [
        [numbers_of(memory.draw(5)) for _ in range(3)]
        for memory in (memory_of(*range(10), seed=1), memory_of(*range(10), seed=1), memory_of(*range(10), seed=2))
    ]
    assert draws[0] == draws[1] != draws[2]


# State.


def test_free_slots_are_not_saved():
    state = memory_of(5, 6, capacity=1000).state_dict()
    assert {name: len(column) for name, column in state["columns"].items()} == dict.fromkeys(state["columns"], 2)


def test_a_restored_memory_has_room_for_as_many_and_draws_as_the_saved_one():
    saved, restored = memory_of(*range(5), capacity=7, seed=3), Memory(7)
    saved.draw(2)
    restored.load_state_dict(saved.state_dict())
    assert restored.capacity == 7
    restored.add(numbered(8, 9))
    assert len(saved) == 5
    saved.add(numbered(8, 9))
    assert numbers_of(restored.draw(4)) == numbers_of(saved.draw(4))


def test_an_empty_memory_is_saved_and_restored():
    restored = memory_of(5, 6)
    restored.load_state_dict(Memory("1 KB").state_dict())
    assert_same(restored.state_dict(), Memory("1 KB").state_dict())
    assert len(restored) == 0


@pytest.mark.parametrize("change", [{"filled": 3}, {"filled": -1}, {"max_samples": 1}])
def test_a_state_that_is_not_whole_is_refused(change: dict[str, int]):
    with pytest.raises(ValueError, match="the saved memory is not whole"):
        Memory(10).load_state_dict(memory_of(5, 6).state_dict() | change)


def test_a_state_without_all_columns_is_refused():
    state = memory_of(5, 6).state_dict()
    del state["columns"]["y"]
    with pytest.raises(ValueError, match="the saved memory is not whole"):
        Memory(10).load_state_dict(state)


def test_a_state_larger_than_the_machine_is_refused():
    with pytest.raises(MemoryError, match="give a smaller capacity"):
        Memory(10).load_state_dict(memory_of(5, 6).state_dict() | {"max_samples": 10**15})


def test_a_state_of_more_samples_than_it_has_room_for_is_refused():
    with pytest.raises(ValueError, match="the saved memory is not whole"):
        Memory(10).load_state_dict(memory_of(5, 6, capacity=10).state_dict() | {"max_samples": 1})
