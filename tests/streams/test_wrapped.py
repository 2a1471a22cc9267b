"""Streams that are made of another stream, on a small one whose inputs name their class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from holdfast.experiments.probes._base import in_turn
from holdfast.streams._base import Stream, Task, all_rows
from holdfast.streams.gaussian import Gaussian
from holdfast.streams.i_blurry import IBlurry
from holdfast.streams.joint import Joint
from holdfast.streams.long_tail import LongTail
from holdfast.streams.recurring import Recurring
from holdfast.streams.si_blurry import SiBlurry

N_CLASSES, N_TRAIN, N_TEST = 20, 50, 6
BLURRED: list[Callable[..., Stream]] = [IBlurry, SiBlurry, Gaussian]
WRAPPED = [*BLURRED, Recurring, LongTail]


class Small(Stream):
    """Ten tasks of two classes; an input is (class, row)."""

    n_classes = N_CLASSES
    input_shape = (2,)

    def __init__(self) -> None:
        def part(n: int, offset: int) -> Callable[[tuple[int, ...]], tuple[Tensor, ...]]:
            y = torch.arange(N_CLASSES).repeat_interleave(n)
            x = torch.stack([y.float(), torch.arange(len(y)) + float(offset)], dim=1)
            rows = all_rows(lambda rows: x[rows], y)
            return lambda classes: rows.only(torch.isin(y, torch.tensor(classes)).nonzero().squeeze(1))

        train, test = part(N_TRAIN, 0), part(N_TEST, 100_000)
        groups = [(2 * i, 2 * i + 1) for i in range(10)]
        super().__init__([Task(i, g, train(g).of_task(i), test(g).of_task(i)) for i, g in enumerate(groups)])


def learned(stream: Stream) -> list[tuple[float, float]]:
    """All inputs in the order in which a run learns them."""
    batches = [task.batch(i, size=7, seed=3) for task in stream for i in range(task.n_steps(7))]
    return [tuple(x) for batch in batches for x in batch.x.tolist()]


@pytest.mark.parametrize("wrap", WRAPPED)
def test_a_stream_belongs_to_its_seed_and_its_batches_are_found_by_number(wrap):
    assert learned(wrap(Small(), seed=5)) == learned(wrap(Small(), seed=5))
    assert learned(wrap(Small(), seed=5)) != learned(wrap(Small(), seed=6))
    stream, again = wrap(Small(), seed=5), wrap(Small(), seed=5)
    last = [task.batch(task.n_steps(4) - 1, size=4, seed=1) for task in stream]
    assert all(torch.equal(b.x, t.batch(t.n_steps(4) - 1, size=4, seed=1).x) for b, t in zip(last, again, strict=True))


@pytest.mark.parametrize("wrap", [*BLURRED, Recurring, Joint])
def test_every_training_sample_comes_exactly_once_under_its_own_class(wrap):
    stream = wrap(Small())
    rows = learned(stream)
    assert sorted(row for _, row in rows) == list(range(N_CLASSES * N_TRAIN))
    for task in stream:
        batch = task.batch(0, size=5, seed=1)
        assert torch.equal(batch.x[:, 0].long(), batch.y)
        assert set(task.train.y.tolist()) == set(task.classes)
        assert isinstance(stream, Joint) or set(task.train.task.tolist()) == {task.id}


@pytest.mark.parametrize("wrap", BLURRED)
def test_a_blurred_stream_is_tested_on_all_classes_seen_so_far_and_on_no_other(wrap):
    stream = wrap(Small())
    seen: set[int] = set()
    for number, task in enumerate(stream, start=1):
        seen |= set(task.train.y.tolist())
        (test,) = stream.tests(number)
        assert Counter(test.test[: len(test.test)].y.tolist()) == dict.fromkeys(seen, N_TEST)
    assert stream.tests(0) == []
    assert not in_turn(stream.tests(1), 0)
    assert len(seen) == N_CLASSES


def test_i_blurry_keeps_disjoint_classes_whole_and_leaks_the_stated_share_of_the_others():
    stream = IBlurry(Small(), n_slices=5, disjoint_classes=50, blurry_samples=10)
    by_class = {c: sorted(Counter(_homes(stream, c)).values()) for c in range(N_CLASSES)}
    whole = [c for c, counts in by_class.items() if counts == [N_TRAIN]]
    blurry = [c for c in by_class if c not in whole]
    assert len(whole) == len(blurry) == N_CLASSES // 2
    assert all(by_class[c][-1] == 45 and sum(by_class[c]) == 50 for c in blurry)  # 10 % of 50 leave
    homes = Counter(_homes(stream, c)[0] for c in whole)
    assert set(homes.values()) == {2}  # ten disjoint classes over five tasks


def test_i_blurry_without_blur_is_a_split_by_class():
    stream = IBlurry(Small(), n_slices=5, disjoint_classes=100)
    assert sorted(c for task in stream for c in task.classes) == list(range(N_CLASSES))


def test_si_blurry_gives_tasks_random_numbers_of_classes():
    sizes = {len(task.classes) for task in SiBlurry(Small(), disjoint_classes=100, seed=2)}
    assert len(sizes) > 1


def test_a_slice_without_samples_is_an_error():
    with pytest.raises(ValueError, match="gets no sample: ask for fewer slices"):
        IBlurry(Small(), n_slices=30, disjoint_classes=100)


def test_gaussian_classes_come_in_bumps_and_in_the_order_of_their_times():
    stream = Gaussian(Small(), width=1.0)
    order = [c for c, _ in learned(stream)]
    where = {c: torch.tensor([float(i) for i, each in enumerate(order) if each == c]) for c in set(order)}
    centres = sorted(positions.mean().item() for positions in where.values())
    gaps = torch.tensor(centres).diff()
    assert gaps.mean().item() == pytest.approx(N_TRAIN, rel=0.1)  # peaks lie a class's samples apart
    spread = torch.stack([positions.std() for positions in where.values()]).mean().item()
    assert spread == pytest.approx(N_TRAIN, rel=0.2)  # of one distance between peaks
    assert [c for c, _ in learned(Gaussian(Small(), width=0.0))] == _runs_of_each(Gaussian(Small(), width=0.0))


def test_recurring_tasks_bring_other_samples_of_the_same_classes():
    stream = Recurring(Small(), rounds=3)
    assert len(stream) == 30
    for number, task in enumerate(stream):
        assert task.classes == (2 * (number % 10), 2 * (number % 10) + 1)
        assert task.id == number
    rows = [set(stream[number].train.rows.tolist()) for number in (0, 10, 20)]
    assert sum(len(each) for each in rows) == len(set().union(*rows))
    with pytest.raises(ValueError, match="rounds=101"):
        Recurring(Small(), rounds=101)


def test_sizes_of_a_long_tail_fall_exponentially():
    stream = LongTail(Small(), imbalance=10)
    sizes = sorted(Counter(int(c) for c, _ in learned(stream)).values(), reverse=True)
    by_hand = [max(1, round(N_TRAIN * 10 ** (-rank / 19))) for rank in range(20)]
    assert sizes == by_hand
    assert [len(task.test) for task in stream] == [2 * N_TEST] * 10


def test_wraps_can_be_nested():
    stream = IBlurry(LongTail(Small(), imbalance=10))
    assert len(learned(stream)) == len(learned(LongTail(Small(), imbalance=10)))


def _homes(stream: Stream, c: int) -> list[int]:
    """The tasks of each sample of a class."""
    return [task.id for task in stream for y in task.train.y.tolist() if y == c]


def _runs_of_each(stream: Stream) -> list[float]:
    order = [c for c, _ in learned(stream)]
    return [c for c in dict.fromkeys(order) for _ in range(N_TRAIN)]
