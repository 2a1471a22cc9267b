"""Samples of several parts as one, and new tasks made of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from holdfast.streams._base import Samples, Stream, Task


def pooled(parts: Sequence[Samples]) -> Samples:
    """Join the samples of all parts, numbered through; each keeps its class and its task."""
    y, task = torch.cat([part.y for part in parts]), torch.cat([part.task for part in parts])
    return Samples(partial(_read_pooled, parts), torch.arange(len(y)), y, task)


def _read_pooled(parts: Sequence[Samples], rows: Tensor) -> Tensor:
    """Read rows (k,) of the parts numbered through: each part once, then all are put in order."""
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


def train_pool(stream: Stream) -> Samples:
    """Join the training samples of all tasks of a stream."""
    return pooled([task.train for task in stream])


def slices(train: Samples, test: Samples, parts: Sequence[Tensor], *, in_order: bool = False) -> list[Task]:
    """Make one task of each part (k,) of the training samples.

    The test samples of a task are those of the classes that come for the first time in it; there may be none.

    Args:
        in_order: the samples of a task come in the order of its part; else in one drawn by the seed of the run.
    """
    seen: set[int] = set()
    tasks = []
    for number, part in enumerate(parts):
        if not len(part):
            raise ValueError(f"slice {number} of the stream gets no sample: ask for fewer slices")
        here = set(train.y[part].tolist())
        rows = torch.isin(test.y, torch.tensor(sorted(here - seen))).nonzero().squeeze(1)
        seen |= here
        own, new = train.only(part).of_task(number), test.only(rows).of_task(number)
        tasks.append(Task(number, tuple(sorted(here)), own, new, in_order))
    return tasks


def rows_by_class(samples: Samples) -> dict[int, Tensor]:
    """Return positions (k,) of each class in the samples, by class in rising order."""
    return {c: (samples.y == c).nonzero().squeeze(1) for c in sorted(set(samples.y.tolist()))}
