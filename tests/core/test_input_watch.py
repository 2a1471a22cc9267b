"""Warnings about inputs name the column or the axis, and come once."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from holdfast.core.input_watch import InputWarning, InputWatch, near_duplicates


def messages(x: Tensor, *, standardised: bool = False, names: tuple[str, ...] = (), repeat: int = 3) -> list[str]:
    watch = InputWatch(standardised=standardised)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(repeat):
            for start in range(0, len(x), 10):
                watch.look(x[start : start + 10], names)
    assert all(issubclass(w.category, InputWarning) for w in caught)
    return [str(w.message) for w in caught]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_ordinary_inputs_give_no_warning() -> None:
    assert messages(normal(100, 4)) == []
    assert messages((normal(20, 3, 16, 16) * 50).clamp(0, 255).byte()) == []


def test_an_unscaled_column_is_named_unless_the_learner_standardises() -> None:
    x = normal(100, 4)
    x[:, 2] = x[:, 2] * 5000 + 100
    (message,) = messages(x)
    assert message.startswith("column 2 is unscaled")
    (message,) = messages(x, names=("a", "b", "salary", "d"))
    assert message.startswith("column 'salary' is unscaled")
    assert messages(x, standardised=True) == []


def test_a_constant_column_is_named() -> None:
    x = normal(100, 4)
    x[:, 3] = 7.0
    (message,) = messages(x, standardised=True)
    assert message.startswith("column 3 had one value")


def test_channels_last_names_the_axis() -> None:
    (message,) = messages(torch.randint(256, (20, 32, 32, 3), dtype=torch.uint8))
    assert "axis 3" in message
    assert "32 channels of 32x3" in message


def test_near_duplicate_rows_are_counted_among_the_first() -> None:
    x = normal(20, 4).repeat(5, 1)
    x = x + 1e-6 * normal(100, 4)
    assert near_duplicates(x) == 80
    (message,) = messages(x, standardised=True)
    assert "80 of the first 100 rows" in message


def test_rows_of_categories_repeat_without_a_warning() -> None:
    x = torch.eye(5)[torch.arange(100) % 5]
    assert near_duplicates(x) == 95
    assert messages(x, standardised=True) == []


@pytest.mark.parametrize("n", [1, 2])
def test_small_batches_are_judged_after_enough_samples(n: int) -> None:
    x = normal(150, 2) * 1e4
    watch = InputWatch(standardised=False)
    for start in range(0, 100 - n, n):
        watch.look(x[start : start + n])
    with pytest.warns(InputWarning, match="columns 0, 1 are unscaled"):
        watch.look(x[100 - n : 100])
