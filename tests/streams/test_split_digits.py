from __future__ import annotations

import pytest
import torch

from holdfast.streams.split_digits import SplitDigits


def test_every_class_and_every_sample_is_in_one_of_five_tasks():
    stream = SplitDigits()
    assert len(stream) == 5
    assert sorted(c for task in stream for c in task.classes) == list(range(10))
    assert sorted(torch.cat([task.train.rows for task in stream]).tolist()) == list(range(1500))
    assert sorted(torch.cat([task.test.rows for task in stream]).tolist()) == list(range(297))


def test_seeds_differ_in_the_order_of_classes():
    orders = {tuple(task.classes for task in SplitDigits(seed=seed)) for seed in range(5)}
    assert len(orders) == 5


def test_no_tasks_are_held_out_for_tuning():
    with pytest.raises(ValueError, match="tasks='tuning', but this stream holds out no tasks for that"):
        SplitDigits(tasks="tuning")
    assert len(SplitDigits(tasks="all")) == 5
