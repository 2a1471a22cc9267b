"""Labels of any kind and their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from holdfast.core.labels import ClassLabels, Labels


@pytest.mark.parametrize(
    "given",
    [
        ["cat", "dog", "cat"],
        [7, -3, 7],
        [2.5, 0.1, 2.5],
        [True, False, True],
        [None, "a", None],
        [(1, "a"), (2,), (1, "a")],
    ],
    ids=str,
)
def test_labels_are_numbered_as_they_come_and_found_again_after_a_save(given: list[Any]) -> None:
    labels = Labels()
    y = labels.learn(given)
    assert y.tolist() == [0, 1, 0]
    again = Labels()
    again.load_state_dict(labels.state_dict())
    assert again.of(y.tolist()) == given
    assert again.learn(["new", given[1]]).tolist() == [2, 1]


def test_numbers_of_numpy_and_torch_are_plain() -> None:
    labels = Labels()
    assert labels.learn(np.array(["a", "b", "a"])).tolist() == [0, 1, 0]
    assert labels.learn(torch.tensor([5, 6])).tolist() == [2, 3]
    assert labels.learn([np.float64(5.0)]).tolist() == [2]
    assert labels.known == ["a", "b", 5, 6]


@pytest.mark.parametrize(
    "wrong", [[float("nan")], [["a"]], [{"a": 1}], [object()]], ids=["nan", "list", "dict", "object"]
)
def test_a_label_that_cannot_be_saved_is_refused_and_nothing_learned(wrong: list[Any]) -> None:
    labels = Labels()
    with pytest.raises(ValueError, match="label"):
        labels.learn(["fine", *wrong])
    assert len(labels) == 0


def test_saved_labels_that_are_no_map_are_refused() -> None:
    for known in ("ab", ["a", "a"], [1, 1.0], [[1]]):
        with pytest.raises(ValueError, match="label"):
            Labels().load_state_dict({"known": known})


@pytest.mark.parametrize("wrong", [1, {0, 1}, {"a": 1}, None, np.array(3)], ids=repr)
def test_labels_that_are_no_row_are_refused(wrong: Any) -> None:
    labels = ClassLabels()
    with pytest.raises(ValueError, match="give one label a sample"):
        labels.preview(wrong, n_classes=2)
