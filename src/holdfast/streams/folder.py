"""Pictures of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field

from holdfast.data.own import find_pictures, own_place
from holdfast.data.photos import MAX_SIZE, decoded
from holdfast.data.places import OWN
from holdfast.streams._base import Stream, TaskSubset, first, thinned
from holdfast.streams._own import tasks_by_class
from holdfast.streams._split import photo_mean, whole


class Folder(Stream):
    """Pictures of one's own: JPEG or PNG files in a folder per class, split into tasks by class.

    The folder holds `train` and `test`, each with a folder for each class. Or it holds a folder for each class, and
    `test_share` says which share of each class is for testing. File names decide which pictures these are, whatever
    the seed. Inputs are (3, size, size) uint8, red first: whole pictures, resized without cropping. The model sees
    numbers from 0 to 1, less the mean colour.

    Args:
        path: the folder; below the folder of the data sets, or from the current folder.
        size: pixels of a side.
        classes_per_task: classes in an order that belongs to the seed; the last task may have fewer.
        n_tuning: the first so many tasks are held out for tuning.
    """

    scale = 1 / 255

    def __init__(
        self,
        data: Path | None = None,
        *,
        seed: int = 1234,
        path: str = "",
        size: Annotated[int, Field(ge=1, le=MAX_SIZE)] = 64,
        test_share: Annotated[float, Field(gt=0, lt=1)] | None = None,
        classes_per_task: Annotated[int, Field(ge=1)] = 2,
        n_tuning: Annotated[int, Field(ge=0)] = 0,
        tasks: TaskSubset = "report",
        n_tasks: Annotated[int, Field(ge=1)] | None = None,
        samples_per_task: Annotated[int, Field(ge=1)] | None = None,
    ) -> None:
        place = own_place(path, data, example="my_pictures")
        pictures = find_pictures(place, test_share)
        samples = whole(decoded(OWN, place, pictures.files, size=size), pictures.y)
        is_train = torch.from_numpy(pictures.is_train)
        made = tasks_by_class(
            samples.only(is_train),
            samples.only(~is_train),
            len(pictures.classes),
            classes_per_task=classes_per_task,
            n_tuning=n_tuning,
            seed=seed,
            tasks=tasks,
        )
        self.classes = tuple(pictures.classes)
        self.n_classes = len(pictures.classes)
        self.input_shape = (3, size, size)
        self.mean = photo_mean() * self.scale
        self.n_held_out = n_tuning
        super().__init__(thinned(first(made, n_tasks), samples_per_task, seed=seed))
