"""All tasks of another stream at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from holdfast.streams._base import Samples, Stream, Task


class Joint(Stream):
    """One task that mixes the samples of all tasks of another stream: what could be reached without drift.

    A sample keeps its class and its task, and testing is task by task as in that stream.
    """

    def __init__(self, of: Stream) -> None:
        self.of = of
        self.n_classes = of.n_classes
        self.input_shape = of.input_shape
        self.scale = of.scale
        self.mean = of.mean
        self.per_class_accuracy = of.per_class_accuracy
        self.n_held_out = of.n_held_out
        classes = sorted(set(chain.from_iterable(task.classes for task in of)))
        train, test = _mixed([task.train for task in of]), _mixed([task.test for task in of])
        super().__init__([Task(0, tuple(classes), train, test)])

    def tests(self, learned: int) -> list[Task]:
        return list(self.of) if learned else []

    def announced(self, number: int) -> list[Task]:
        return list(self.of)


def _mixed(parts: Sequence[Samples]) -> Samples:
    """The samples of all parts, numbered through."""
    y, task = torch.cat([part.y for part in parts]), torch.cat([part.task for part in parts])
    return Samples(partial(_read_mixed, parts), torch.arange(len(y)), y, task)


def _read_mixed(parts: Sequence[Samples], rows: Tensor) -> Tensor:
    """Rows (k,) of the parts numbered through: each part is read once, then all are put in order."""
    lengths = torch.tensor([len(part) for part in parts])
    ends = lengths.cumsum(0)
    part_of = torch.searchsorted(ends, rows, right=True)
    by_part = part_of.argsort(stable=True)
    within_part = (rows - (ends - lengths)[part_of])[by_part]
    counts = part_of.bincount(minlength=len(parts)).tolist()
    x = torch.cat(
        [part.read(part.rows[index]) for part, index in zip(parts, torch.split(within_part, counts), strict=True)]
    )
    return x[by_part.argsort()]
