from collections import Counter

import pytest
import torch
from scipy.stats import chisquare

from holdfast.core.batch import NO_TASK, Batch
from holdfast.memory.retrieval.old_tasks import OldTasks
from holdfast.memory.storage import Memory


def samples(tasks: list[int]) -> Batch:
    """Sample number i, of the task tasks[i]."""
    y = torch.arange(len(tasks))
    return Batch(y[:, None], y, torch.tensor(tasks))


def picked(stored: list[int], size: int, new: list[int]) -> list[int]:
    memory = Memory(len(stored))
    memory.fit(samples(stored))
    memory.add(samples(stored))
    return sorted(OldTasks().pick(memory, size, samples(new), model=None).y.tolist())


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ([2, 2], [0, 1, 2, 3]),
        ([0], [2, 3, 4]),
        ([0, 2], [2, 3]),
        ([5], [0, 1, 2, 3, 4]),
        ([0, 1, 2], []),
    ],
)
def test_samples_of_the_tasks_of_the_batch_are_left_out(new: list[int], expected: list[int]):
    assert picked([0, 0, 1, 1, 2], 10, new) == expected


def test_where_tasks_are_not_known_everything_stored_is_old():
    assert picked([NO_TASK] * 4, 10, [NO_TASK, NO_TASK]) == [0, 1, 2, 3]


def test_no_more_are_picked_than_asked_for_and_none_twice():
    drawn = picked([0] * 9 + [1], 4, [1])
    assert len(set(drawn)) == 4
    assert set(drawn) <= set(range(9))


def test_old_samples_are_equally_likely():
    stored = samples([0, 1, 0, 2, 1, 0, 2, 2])
    memory, counts = Memory(8), Counter()
    memory.fit(stored)
    memory.add(stored)
    for _ in range(1000):
        counts.update(OldTasks().pick(memory, 2, samples([1]), model=None).y.tolist())
    assert set(counts) == {0, 2, 3, 5, 6, 7}
    assert chisquare(list(counts.values())).pvalue > 0.01
