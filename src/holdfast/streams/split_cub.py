"""Split CUB-200."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field

from holdfast.data.layouts import read_cub
from holdfast.data.photos import MAX_SIZE, decoded
from holdfast.data.places import data_root
from holdfast.streams._base import Stream, TaskSubset, chosen, first, thinned
from holdfast.streams._split import MAX_TURNS, even_class_groups, photo_mean, split_tasks, turned, whole


class SplitCub(Stream):
    """The 200 birds of CUB-200-2011, ten at a time.

    20 tasks of about 300 training and 290 test samples, by the official split. Labels 0 to 29 make the 3 tuning tasks.
    Labels 30 to 199, in an order given by the seed, make the 17 reported tasks. Inputs are (3, size, size) uint8, red
    first: whole photos, resized without cropping.

    Protocol of Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019.

    Args:
        classes_per_task: of each task, a divisor of both the held-out and the reported classes.
        held_out: the number of classes that are held out for tuning; 0 for protocols that take all classes.
        turns: more than 1 adds all tasks again with photos turned, as classes of their own, as in `split_cifar100`.
    """

    def __init__(
        self,
        data: Path | None = None,
        *,
        seed: int = 1234,
        tasks: TaskSubset = "report",
        n_tasks: Annotated[int, Field(ge=1)] | None = None,
        samples_per_task: Annotated[int, Field(ge=1)] | None = None,
        size: Annotated[int, Field(ge=1, le=MAX_SIZE)] = 224,
        turns: Annotated[int, Field(ge=1, le=MAX_TURNS)] = 1,
        classes_per_task: Annotated[int, Field(ge=1, le=200)] = 10,
        held_out: Annotated[int, Field(ge=0, le=199)] = 30,
    ) -> None:
        tuning = even_class_groups(range(held_out), classes_per_task, seed=seed)
        report = even_class_groups(range(held_out, 200), classes_per_task, seed=seed)
        groups = chosen(tuning, report, tasks)
        root = data_root(data)
        photos = read_cub(root)
        samples = whole(decoded("cub", root, photos.files, size=size), photos.y)
        is_train = torch.from_numpy(photos.is_train)
        self.input_shape = (3, size, size)
        self.mean = photo_mean()
        self.n_classes = 200 * turns
        self.n_held_out = len(tuning)
        split = split_tasks(groups, samples.only(is_train), samples.only(~is_train))
        split = first(turned(split, turns, n_classes=200), n_tasks)
        super().__init__(thinned(split, samples_per_task, seed=seed))
