from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data.layouts import read_idx
from holdfast.data.places import BrokenData
from holdfast.streams.permuted_mnist import PermutedMnist
from tests.support import data_files


def test_the_first_5000_rows_are_set_aside(made_up_data: Path):
    train = PermutedMnist(made_up_data)[0].train
    x = read_idx(made_up_data, "mnist/train-images-idx3-ubyte", item_shape=(28, 28))
    assert len(train) == 30
    assert train[:].x.sum(dim=1).tolist() == x[5000:].sum(axis=(1, 2)).tolist()
    y = read_idx(made_up_data, "mnist/train-labels-idx1-ubyte")
    assert train.y.tolist() == y[5000:].tolist() != y[:30].tolist()


def test_a_task_has_one_order_of_pixels_for_training_and_testing(made_up_data: Path):
    files = {"train": "mnist/train-images-idx3-ubyte", "test": "mnist/t10k-images-idx3-ubyte"}
    train, test = (
        torch.from_numpy(read_idx(made_up_data, file, item_shape=(28, 28))).flatten(1) for file in files.values()
    )
    task = PermutedMnist(made_up_data)[2]
    columns = {column.numpy().tobytes(): i for i, column in enumerate(train[5000:].T.contiguous())}
    order = [columns[column.numpy().tobytes()] for column in task.train[:].x.T.contiguous()]
    assert sorted(order) == list(range(784))
    assert order != list(range(784))
    assert torch.equal(task.test[:].x, test[:, order])


def test_no_two_tasks_share_an_order_of_pixels(made_up_data: Path):
    inputs = [task.test[:1].x.numpy().tobytes() for task in PermutedMnist(made_up_data, tasks="all")]
    assert len(set(inputs)) == 20


def test_inputs_stay_bytes_and_are_scaled_to_1(made_up_data: Path):
    stream = PermutedMnist(made_up_data)
    assert stream[0].train[:1].x.dtype == torch.uint8
    assert (255 * stream.scale, stream.mean, stream.n_classes) == (1.0, 0.0, 10)


def test_too_few_training_images_are_an_error(tmp_path: Path):
    data_files.write_mnist(tmp_path, n_train=5000)
    with pytest.raises(BrokenData, match="found 5000 training images, expected more than 5,000"):
        PermutedMnist(tmp_path)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(19, np.uint8), "found 20 images and 19 labels in t10k, expected as many of each"),
        (np.full(20, 10, np.uint8), "found label 10 in t10k, expected 0 to 9"),
    ],
)
def test_labels_that_do_not_fit_the_images_are_an_error(tmp_path: Path, labels: np.ndarray, message: str):
    data_files.write_mnist(tmp_path)
    (tmp_path / "mnist/t10k-labels-idx1-ubyte").unlink()
    (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(data_files.idx(labels)))
    with pytest.raises(BrokenData, match=message):
        PermutedMnist(tmp_path)


@pytest.mark.real_data
def test_real_mnist_has_the_counts_of_the_protocol(real_data: Path):
    stream = PermutedMnist(real_data)
    assert [(len(task.train), len(task.test)) for task in stream] == [(55_000, 10_000)] * 17
    assert stream[0].n_steps(10) == 5_500


@pytest.mark.real_data
def test_real_mnist_is_read_exactly(real_data: Path):
    labels = read_idx(real_data, "mnist/train-labels-idx1-ubyte")
    assert labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert np.bincount(labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = PermutedMnist(real_data, n_tasks=1)[0].test
    assert test.y[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    images = read_idx(real_data, "mnist/train-images-idx3-ubyte", item_shape=(28, 28))
    assert round(images.mean() / 255, 4) == 0.1307  # the mean that is published everywhere
