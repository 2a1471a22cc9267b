"""Permuted digits: Permuted MNIST in small."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from holdfast.streams._base import Stream, TaskSubset, chosen, first, thinned
from holdfast.streams._digits import digits
from holdfast.streams._permuted import permuted_tasks


class PermutedDigits(Stream):
    """Scikit-learn's digits again and again, each task with the pixels in an order of its own.

    13 tasks of 1,500 training and 297 test samples, of which 3 are for tuning and 10 are reported.
    Inputs are (64,) uint8 from 0 to 16, and all tasks share one head of 10 classes. Nothing to download.
    """

    n_classes = 10
    input_shape = (64,)
    scale = 1 / 16

    def __init__(
        self,
        data: Path | None = None,  # not used, but all streams are built alike
        *,
        seed: int = 1234,
        tasks: TaskSubset = "report",
        n_tasks: Annotated[int, Field(ge=1)] | None = None,
        samples_per_task: Annotated[int, Field(ge=1)] | None = None,
    ) -> None:
        numbers = first(chosen(range(3), range(3, 13), tasks), n_tasks)
        train, test = digits()
        permuted = permuted_tasks(numbers, train, test, seed=seed)
        super().__init__(thinned(permuted, samples_per_task, seed=seed))
