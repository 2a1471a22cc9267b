"""Split CIFAR-10."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from holdfast.data.layouts import read_cifar10
from holdfast.data.places import data_root
from holdfast.streams._base import Stream, TaskSubset, chosen, first, thinned
from holdfast.streams._split import even_class_groups, split_tasks, whole


class SplitCifar10(Stream):
    """The ten classes of CIFAR-10, two at a time.

    5 tasks of 10,000 training and 2,000 test samples, their classes in an order that belongs to the seed. No class is
    held out for tuning: values tuned on CIFAR-100's held-out classes are taken. Inputs are (3, 32, 32) uint8; the mean
    image of the training set is taken off.

    Args:
        classes_per_task: of each task, a divisor of 10.
    """

    input_shape = (3, 32, 32)
    scale = 1 / 255
    n_classes = 10
    n_held_out = 0

    def __init__(
        self,
        data: Path | None = None,
        *,
        seed: int = 1234,
        tasks: TaskSubset = "report",
        n_tasks: Annotated[int, Field(ge=1)] | None = None,
        samples_per_task: Annotated[int, Field(ge=1)] | None = None,
        classes_per_task: Annotated[int, Field(ge=1, le=10)] = 2,
    ) -> None:
        report = even_class_groups(range(10), classes_per_task, seed=seed)
        groups = chosen([], report, tasks)
        root = data_root(data)
        batches = [read_cifar10(root, f"cifar-10-batches-bin/data_batch_{i}.bin") for i in range(1, 6)]
        x, y = np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])
        x_test, y_test = read_cifar10(root, "cifar-10-batches-bin/test_batch.bin")
        self.mean = torch.from_numpy(x.mean(axis=0, dtype=np.float64) / 255).float()
        split = first(split_tasks(groups, whole(x, y), whole(x_test, y_test)), n_tasks)
        super().__init__(thinned(split, samples_per_task, seed=seed))
