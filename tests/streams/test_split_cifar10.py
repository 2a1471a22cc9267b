from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holdfast.data.layouts import read_cifar10
from holdfast.data.places import BrokenData
from holdfast.streams.split_cifar10 import SplitCifar10
from tests.support import data_files


def test_all_classes_are_reported_two_at_a_time(made_up_data: Path):
    stream = SplitCifar10(made_up_data)
    assert [len(task.classes) for task in stream] == [2] * 5
    assert sorted(c for task in stream for c in task.classes) == list(range(10))
    assert [len(task.train) for task in stream] == [20] * 5
    with pytest.raises(ValueError, match="holds out no tasks"):
        SplitCifar10(made_up_data, tasks="tuning")
    with pytest.raises(ValueError, match="cannot be cut into tasks of 3"):
        SplitCifar10(made_up_data, classes_per_task=3)


def test_the_five_batches_follow_each_other(made_up_data: Path):
    stream = SplitCifar10(made_up_data, classes_per_task=10)
    x, y = read_cifar10(made_up_data, "cifar-10-batches-bin/data_batch_3.bin")
    samples = stream[0].train
    third = samples.only((samples.rows >= 40) & (samples.rows < 60))
    batch = third[:]
    assert torch.equal(batch.x, torch.from_numpy(x.copy()))
    assert batch.y.tolist() == y.tolist()


def test_a_label_beyond_the_classes_is_named(tmp_path: Path):
    data_files.write_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    content = bytearray(path.read_bytes())
    content[0] = 10
    path.write_bytes(content)
    with pytest.raises(BrokenData, match="found label 10, expected 0 to 9"):
        SplitCifar10(tmp_path)


@pytest.mark.real_data
def test_real_cifar10_is_complete(real_data: Path):
    if not (real_data / "cifar-10-batches-bin").is_dir():
        pytest.skip("no CIFAR-10 beside the real data")
    stream = SplitCifar10(real_data)
    assert [len(task.train) for task in stream] == [10_000] * 5
    assert [len(task.test) for task in stream] == [2_000] * 5
