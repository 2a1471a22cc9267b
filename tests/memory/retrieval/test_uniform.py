from collections import Counter

import torch
from scipy.stats import chisquare

from holdfast.core.batch import Batch
from holdfast.memory.retrieval.uniform import Uniform
from holdfast.memory.storage import Memory


def memory_of(n: int) -> Memory:
    """Samples with the numbers below n as classes, of tasks 0, 1, 0, 1, …"""
    y = torch.arange(n)
    batch = Batch(y[:, None], y, y % 2)
    memory = Memory(n)
    memory.fit(batch)
    memory.add(batch)
    return memory


def test_all_that_is_stored_is_equally_likely_and_never_twice():
    memory, counts = memory_of(8), Counter()
    for _ in range(1000):
        drawn = Uniform().pick(memory, 3, memory[:2], model=None).y.tolist()
        assert len(set(drawn)) == 3
        counts.update(drawn)
    assert chisquare([counts[i] for i in range(8)]).pvalue > 0.01


def test_fewer_stored_than_asked_for_are_all_picked():
    memory = memory_of(4)
    assert sorted(Uniform().pick(memory, 10, memory[:1], model=None).y.tolist()) == [0, 1, 2, 3]
