from __future__ import annotations

import sys

import pytest
import torch

from holdfast.data.places import MissingData
from holdfast.streams._digits import digits
from holdfast.streams.permuted_digits import PermutedDigits


def test_ten_tasks_of_1500_and_297_samples_are_reported():
    stream = PermutedDigits()
    assert [(len(task.train), len(task.test)) for task in stream] == [(1500, 297)] * 10
    assert all(task.classes == tuple(range(10)) for task in stream)


def test_the_split_has_all_classes_in_proportion_and_all_samples_once():
    from sklearn.datasets import load_digits

    (x_train, y_train), (x_test, y_test) = digits()
    x, y = load_digits(return_X_y=True)
    for c in range(10):
        assert abs((y_test == c).sum() - 297 * (y == c).mean()) < 1
    assert sorted(row.tobytes() for part in (x_train, x_test) for row in part) == sorted(
        row.astype("uint8").tobytes() for row in x
    )
    assert len(y_train) + len(y_test) == len(y)


def test_no_two_tasks_share_an_order_of_pixels():
    inputs = [tuple(task.test[:1].x[0].tolist()) for task in PermutedDigits(tasks="all")]
    assert len(set(inputs)) == 13
    assert len({tuple(sorted(pixels)) for pixels in inputs}) == 1


def test_inputs_stay_bytes_and_are_scaled_to_1():
    stream = PermutedDigits()
    x = stream[0].train[:].x
    assert x.dtype == torch.uint8
    assert x.max() * stream.scale == 1.0


def test_without_scikit_learn_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    digits.cache_clear()
    with pytest.raises(MissingData, match=r"scikit-learn, which is not installed: pip install 'scikit-learn>=1.4'"):
        PermutedDigits()
