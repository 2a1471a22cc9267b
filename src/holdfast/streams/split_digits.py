"""Split digits: Split CIFAR-100 in small."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from holdfast.streams._base import Stream, TaskSubset, chosen, first, thinned
from holdfast.streams._digits import digits
from holdfast.streams._split import class_groups, split_tasks, whole


class SplitDigits(Stream):
    """Scikit-learn's digits, two at a time.

    5 tasks of about 300 training and 60 test samples, the classes in an order that belongs to the seed;
    none is held out for tuning. Inputs are (64,) uint8 from 0 to 16. Nothing to download.
    """

    n_classes = 10
    input_shape = (64,)
    scale = 1 / 16
    n_held_out = 0

    def __init__(
        self,
        data: Path | None = None,  # not used, but all streams are built alike
        *,
        seed: int = 1234,
        tasks: TaskSubset = "report",
        n_tasks: Annotated[int, Field(ge=1)] | None = None,
        samples_per_task: Annotated[int, Field(ge=1)] | None = None,
    ) -> None:
        groups = first(chosen([], class_groups(range(10), 2, seed=seed), tasks), n_tasks)
        train, test = digits()
        split = split_tasks(groups, whole(*train), whole(*test))
        super().__init__(thinned(split, samples_per_task, seed=seed))
