"""Base class of streams that permute the inputs of one data set."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.layouts import Rows
from holdfast.streams._base import Samples, Task, all_rows, seeded_generator


def permuted_tasks(numbers: Sequence[int], train: Rows, test: Rows, *, seed: int) -> list[Task]:
    """Return one task for each number: the same samples, their inputs in the order that belongs to that number."""
    n_inputs = train[0].shape[1]
    classes = tuple(np.unique(train[1]).tolist())
    tasks = []
    for i, number in enumerate(numbers):
        order = torch.randperm(n_inputs, generator=seeded_generator("permutation", seed, number)).numpy()
        tasks.append(Task(i, classes, _permuted(*train, order).of_task(i), _permuted(*test, order).of_task(i)))
    return tasks


def _permuted(x: NDArray[np.uint8], y: NDArray[np.int64], order: NDArray[np.int64]) -> Samples:
    return all_rows(partial(_read_permuted, x, order), torch.from_numpy(y))


def _read_permuted(x: NDArray[np.uint8], order: NDArray[np.int64], rows: Tensor) -> Tensor:
    return torch.from_numpy(x[rows.numpy()].take(order, axis=1))  # here NumPy is several times faster
