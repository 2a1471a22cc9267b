"""Base class of streams that split a data set by class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.places import BrokenData
from holdfast.streams._base import Samples, Task, all_rows, seeded_generator, shuffled

MAX_TURNS = 4  # ways in which a picture can be turned by quarters
PHOTO_MEAN = (123.68, 116.78, 103.94)  # ImageNet's mean red, green and blue, out of 255


def whole(x: NDArray[Any], y: NDArray[Any]) -> Samples:
    """Return all rows of inputs (n, …), which may be a mapped file, with labels (n,)."""
    return all_rows(partial(_copied_rows, x), torch.from_numpy(y))


def _copied_rows(x: NDArray[Any], rows: Tensor) -> Tensor:
    return torch.from_numpy(x[rows.numpy()])


def class_groups(labels: Sequence[int], size: int, *, seed: int) -> list[list[int]]:
    """Return the labels in an order that belongs to `seed`, cut into groups of `size`, one for each task."""
    generator = seeded_generator("class order", seed, labels[0])  # the first label tells tuning from report
    order = shuffled(labels, generator)
    return [order[i : i + size] for i in range(0, len(order), size)]


def even_class_groups(labels: Sequence[int], size: int, *, seed: int) -> list[list[int]]:
    """Cut the labels as `class_groups`; raise if a group would be smaller. No labels make no group."""
    if len(labels) % size:
        raise ValueError(f"{len(labels)} classes cannot be cut into tasks of {size}: give classes_per_task a divisor")
    return class_groups(labels, size, seed=seed) if labels else []


def split_tasks(groups: Sequence[Sequence[int]], train: Samples, test: Samples) -> list[Task]:
    """Return one task for each group of classes."""
    return [
        Task(
            i,
            tuple(sorted(classes)),
            train.only(rows_of_classes(train, classes)).of_task(i),
            test.only(rows_of_classes(test, classes)).of_task(i),
        )
        for i, classes in enumerate(groups)
    ]


def turned(tasks: Sequence[Task], turns: int, *, n_classes: int) -> list[Task]:
    """Return the tasks, and after them the same with pictures turned a quarter, a half …, under labels of their own.

    Args:
        turns: how many times each task comes, 1 to 4. n_classes: of the data set, so that labels go on from there.
    """
    more = [
        _turned(task, turn, id=turn * len(tasks) + task.id, n_classes=n_classes)
        for turn in range(1, turns)
        for task in tasks
    ]
    return [*tasks, *more]


def _turned(task: Task, turn: int, *, id: int, n_classes: int) -> Task:
    def of(samples: Samples) -> Samples:
        read = partial(_turned_rows, samples.read, turn)
        return replace(samples, read=read, y=samples.y + turn * n_classes).of_task(id)

    return Task(id, tuple(turn * n_classes + c for c in task.classes), of(task.train), of(task.test))


def _turned_rows(read: Callable[[Tensor], Tensor], turn: int, rows: Tensor) -> Tensor:
    return torch.rot90(read(rows), turn, (2, 3)).contiguous()


def rows_of_classes(samples: Samples, classes: Sequence[int]) -> Tensor:
    """Return (k,) positions in `samples` of the given classes, in order. Each class must be present."""
    index = torch.isin(samples.y, torch.tensor(classes)).nonzero().squeeze(1)
    if absent := set(classes) - set(samples.y[index].tolist()):
        raise BrokenData(f"the data has no sample of class {min(absent)}: it is not complete, get it again")
    return index


def photo_mean() -> Tensor:
    """Return the mean of photos (3, 1, 1), which is subtracted from every photo."""
    return torch.tensor(PHOTO_MEAN).reshape(3, 1, 1)
