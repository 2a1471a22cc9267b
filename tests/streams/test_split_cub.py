from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holdfast.data.layouts import read_cub
from holdfast.data.photos import decode
from holdfast.streams.split_cub import SplitCub


def test_every_class_is_in_one_task_and_tuning_has_the_first_30(made_up_data: Path):
    stream = SplitCub(made_up_data, tasks="all", size=6)
    assert all(len(task.classes) == 10 for task in stream)
    assert sorted(c for task in stream[:3] for c in task.classes) == list(range(30))
    assert sorted(c for task in stream[3:] for c in task.classes) == list(range(30, 200))


def test_every_photo_is_in_one_task_on_its_side_of_the_official_split(made_up_data: Path):
    stream = SplitCub(made_up_data, tasks="all", size=6)
    photos = read_cub(made_up_data)
    for is_train in (True, False):
        parts = [task.train if is_train else task.test for task in stream]
        rows = torch.cat([part.rows for part in parts])
        assert sorted(rows.tolist()) == (photos.is_train == is_train).nonzero()[0].tolist()
        assert torch.cat([part.y for part in parts]).tolist() == photos.y[rows.numpy()].tolist()


def test_a_row_is_its_photo(made_up_data: Path):
    train = SplitCub(made_up_data, size=6)[4].train
    files = read_cub(made_up_data).files
    for row, photo in zip(train.rows.tolist(), train[:].x, strict=True):
        assert photo.tolist() == decode("cub", made_up_data / files[row], size=6).tolist()


def test_the_mean_that_is_taken_off_is_red_green_blue_and_not_scaled(made_up_data: Path):
    stream = SplitCub(made_up_data, size=6, n_tasks=1)
    assert isinstance(stream.mean, torch.Tensor)
    torch.testing.assert_close(stream.mean, torch.tensor([[[123.68]], [[116.78]], [[103.94]]]))
    assert stream.scale == 1.0
    assert stream.input_shape == (3, 6, 6)


def test_turned_tasks_follow_with_labels_of_their_own(made_up_data: Path):
    plain = SplitCub(made_up_data, tasks="tuning", size=6)
    stream = SplitCub(made_up_data, tasks="tuning", size=6, turns=3, n_tasks=8)
    assert (plain.n_classes, stream.n_classes, len(stream)) == (200, 600, 8)
    half_turned, original = stream[7], plain[1]
    assert half_turned.classes == tuple(400 + c for c in original.classes)
    assert torch.equal(half_turned.test[:].x, original.test[:].x.flip(2, 3))


@pytest.mark.real_data
def test_real_cub_has_the_counts_of_the_protocol(real_data: Path):
    stream = SplitCub(real_data, size=84)
    assert len(stream) == 17
    assert sum(len(task.train) for task in stream) == 5_094
    assert sum(len(task.test) for task in stream) == 4_993
    everything = SplitCub(real_data, size=84, tasks="all")
    assert sum(len(task.train) for task in everything) == 5_994
    assert sum(len(task.test) for task in everything) == 5_794
