"""Imbalanced classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field

from holdfast.streams._base import Samples, Stream, Task, seeded_generator, shuffled
from holdfast.streams._pool import rows_by_class, train_pool
from holdfast.streams._wrapped import WrappedStream


class LongTail(WrappedStream):
    """The tasks of another stream with few samples of most classes: sizes fall exponentially from class to class.

    The seed orders the C classes. The class of rank r keeps n · imbalance^(-r / (C - 1)) of its n training samples,
    rounded, at least one, drawn at random. Test samples stay.

    Cao et al., "Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss", NeurIPS 2019.

    Args:
        of: the stream that gives the tasks.
        imbalance: size of the largest class, in sizes of the smallest.
    """

    def __init__(self, of: Stream, *, seed: int = 1234, imbalance: Annotated[float, Field(ge=1)] = 100.0) -> None:
        generator = seeded_generator("long tail", seed)
        order = shuffled(list(rows_by_class(train_pool(of))), generator)
        share = {c: imbalance ** (-rank / max(1, len(order) - 1)) for rank, c in enumerate(order)}
        super().__init__(of, [_thinned(task, share, generator) for task in of])


def _thinned(task: Task, share: dict[int, float], generator: torch.Generator) -> Task:
    return replace(task, train=_fewer(task.train, share, generator))


def _fewer(samples: Samples, share: dict[int, float], generator: torch.Generator) -> Samples:
    kept = []
    for c, rows in rows_by_class(samples).items():
        n = max(1, round(share[c] * len(rows)))
        kept.append(rows[torch.randperm(len(rows), generator=generator)[:n]])
    return samples.only(torch.cat(kept).sort().values)
