from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data.layouts import read_cifar100
from holdfast.data.places import BrokenData
from holdfast.streams.split_cifar100 import SplitCifar100
from tests.support import data_files


def test_every_class_is_in_one_task_and_tuning_has_the_first_15(made_up_data: Path):
    stream = SplitCifar100(made_up_data, tasks="all")
    assert all(len(task.classes) == 5 for task in stream)
    assert sorted(c for task in stream[:3] for c in task.classes) == list(range(15))
    assert sorted(c for task in stream[3:] for c in task.classes) == list(range(15, 100))


def test_every_image_is_in_one_task_under_its_published_label(made_up_data: Path):
    stream = SplitCifar100(made_up_data, tasks="all")
    _, y = read_cifar100(made_up_data, "cifar-100-binary/train.bin")
    rows = torch.cat([task.train.rows for task in stream])
    assert sorted(rows.tolist()) == list(range(400))
    assert torch.cat([task.train.y for task in stream]).tolist() == y[rows.numpy()].tolist()


def test_the_mean_image_of_the_whole_training_set_is_taken_off(made_up_data: Path):
    stream = SplitCifar100(made_up_data, n_tasks=1)
    x, _ = read_cifar100(made_up_data, "cifar-100-binary/train.bin")
    left = torch.from_numpy(x.copy()) * stream.scale - stream.mean
    assert left.shape == (400, 3, 32, 32)
    torch.testing.assert_close(left.mean(dim=0), torch.zeros(3, 32, 32), atol=1e-6, rtol=0)


def test_turned_tasks_follow_with_labels_of_their_own_and_their_pictures_turned(made_up_data: Path):
    plain = SplitCifar100(made_up_data, tasks="tuning")
    stream = SplitCifar100(made_up_data, tasks="tuning", turns=4)
    assert (stream.n_classes, len(stream), [task.id for task in stream]) == (400, 12, list(range(12)))
    for turn in range(4):
        for task, original in zip(stream[3 * turn : 3 * turn + 3], plain, strict=True):
            assert task.classes == tuple(100 * turn + c for c in original.classes)
            for part, before in ((task.train, original.train), (task.test, original.test)):
                now, then = part[:], before[:]
                assert torch.equal(now.y, then.y + 100 * turn)
                assert set(now.task.tolist()) == {task.id}
                turned_back = now.x
                for _ in range(turn):  # a quarter: the last column becomes the first row
                    turned_back = turned_back.transpose(2, 3).flip(3)
                assert torch.equal(turned_back, then.x)
    assert len(SplitCifar100(made_up_data, tasks="tuning", turns=3, n_tasks=7)) == 7


def test_a_class_without_images_is_an_error(tmp_path: Path):
    data_files.write_cifar100(tmp_path)
    path = tmp_path / "cifar-100-binary/test.bin"
    records = np.fromfile(path, np.uint8).reshape(-1, 3074)
    path.write_bytes(records[records[:, 1] != 40].tobytes())
    with pytest.raises(BrokenData, match="the data has no sample of class 40"):
        SplitCifar100(tmp_path)


@pytest.mark.real_data
def test_real_cifar_has_the_counts_of_the_protocol(real_data: Path):
    stream = SplitCifar100(real_data)
    assert [(len(task.train), len(task.test)) for task in stream] == [(2_500, 500)] * 17
    assert stream[0].n_steps(10) == 250


@pytest.mark.real_data
def test_real_cifar_has_the_published_mean(real_data: Path):
    _, y = read_cifar100(real_data, "cifar-100-binary/train.bin")
    assert np.bincount(y).tolist() == [500] * 100
    mean = SplitCifar100(real_data, n_tasks=1).mean
    assert isinstance(mean, torch.Tensor)
    torch.testing.assert_close(
        mean.mean(dim=(1, 2)), torch.tensor([0.5070751, 0.48654887, 0.44091784]), atol=1e-6, rtol=0
    )
