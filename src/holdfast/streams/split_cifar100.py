"""Split CIFAR-100."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from holdfast.core.options import Before
from holdfast.data.layouts import read_cifar100
from holdfast.data.places import data_root
from holdfast.streams._base import Stream, TaskSubset, chosen, first, thinned
from holdfast.streams._split import MAX_TURNS, even_class_groups, split_tasks, turned, whole


class SplitCifar100(Stream):
    """The 100 classes of CIFAR-100, five at a time.

    20 tasks of 2,500 training and 500 test samples. Labels 0 to 14 make the 3 tuning tasks. Labels 15 to 99, in an
    order given by the seed, make the 17 reported tasks. Inputs are (3, 32, 32) uint8; the mean image of the whole
    training set is taken off.

    Protocol of Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019. Class-incremental protocols take
    all classes: held_out=0, with 5 or 10 classes a task.

    Args:
        classes_per_task: of each task, a divisor of both the held-out and the reported classes.
        held_out: the number of classes that are held out for tuning.
        turns: more than 1 adds all tasks again with pictures turned by a quarter, then by a half and three quarters, as
            classes of their own. So the tuning tasks make a stream long enough to see what is forgotten.
    """

    input_shape = (3, 32, 32)
    scale = 1 / 255

    def __init__(
        self,
        data: Path | None = None,
        *,
        seed: int = 1234,
        tasks: TaskSubset = "report",
        n_tasks: Annotated[int, Field(ge=1)] | None = None,
        samples_per_task: Annotated[int, Field(ge=1)] | None = None,
        turns: Annotated[int, Field(ge=1, le=MAX_TURNS)] = 1,
        classes_per_task: Annotated[int, Field(ge=1, le=100), Before(5)] = 5,
        held_out: Annotated[int, Field(ge=0, le=99), Before(15)] = 15,
    ) -> None:
        tuning = even_class_groups(range(held_out), classes_per_task, seed=seed)
        report = even_class_groups(range(held_out, 100), classes_per_task, seed=seed)
        groups = chosen(tuning, report, tasks)
        root = data_root(data)
        x, y = read_cifar100(root, "cifar-100-binary/train.bin")
        x_test, y_test = read_cifar100(root, "cifar-100-binary/test.bin")
        self.mean = torch.from_numpy(x.mean(axis=0, dtype=np.float64) / 255).float()
        self.n_classes = 100 * turns
        self.n_held_out = len(tuning)
        split = first(turned(split_tasks(groups, whole(x, y), whole(x_test, y_test)), turns, n_classes=100), n_tasks)
        super().__init__(thinned(split, samples_per_task, seed=seed))
