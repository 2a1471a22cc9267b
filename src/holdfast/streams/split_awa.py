"""Split AWA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field

from holdfast.data.layouts import N_AWA, read_awa1_features, read_awa2
from holdfast.data.photos import MAX_SIZE, decoded
from holdfast.data.places import BrokenData, data_root
from holdfast.streams._base import Samples, Stream, Task, TaskSubset, chosen, first, seeded_generator, shuffled, thinned
from holdfast.streams._split import photo_mean, rows_of_classes, whole


class SplitAwa(Stream):
    """Animals with Attributes, five at a time, drawn again for each task, so that animals come back.

    20 tasks: 3 for tuning with animals 0 to 14, and 17 that are reported with animals 15 to 49. The
    training samples of an animal are shared out equally among its tasks; the test samples are the
    same in all of them. An animal has a unit of its own in each task: class = 50 * task + label.
    Accuracy is the mean over the classes of a task.

    The `source` "images" is AwA2, of which there is no official split. Ours takes 70 % of each animal for training, 15
    % for validation (not used) and 15 % for testing. It orders files by the SHA-256 of their names, whatever the seed.
    Inputs are (3, size, size) uint8, red first: whole photos, resized without cropping. The `source` "features" is a
    512-number description of the images of the first edition, in float16, with the split that comes with it.

    Protocol of Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019.
    """

    per_class_accuracy = True

    def __init__(
        self,
        data: Path | None = None,
        *,
        seed: int = 1234,
        tasks: TaskSubset = "report",
        n_tasks: Annotated[int, Field(ge=1)] | None = None,
        samples_per_task: Annotated[int, Field(ge=1)] | None = None,
        source: Literal["images", "features"] = "images",
        size: Annotated[int, Field(ge=1, le=MAX_SIZE)] = 224,
    ) -> None:
        tuning = [_draw(range(15), seed=seed, number=number) for number in range(3)]
        report = [_draw(range(15, N_AWA), seed=seed, number=number) for number in range(3, 20)]
        groups = chosen(tuning, report, tasks)
        n_kept = len(first(groups, n_tasks))

        root = data_root(data)
        if source == "images":
            photos = read_awa2(root)
            samples = whole(decoded("awa2", root, photos.files, size=size), photos.y)
            is_train = torch.from_numpy(photos.is_train)
            self.input_shape = (3, size, size)
            self.mean = photo_mean()
        elif source == "features":
            vectors = read_awa1_features(root)
            samples = whole(vectors.x, vectors.y)
            is_train = torch.from_numpy(vectors.is_train)
            self.input_shape = vectors.x.shape[1:]
        else:
            raise ValueError(f"source={source!r}: expected 'images' or 'features'")

        self.n_classes = N_AWA * n_kept
        # Shared out among all tasks, so that the first ones stay the same when fewer are wanted.
        shared_out = _tasks(groups, samples.only(is_train), samples.only(~is_train))
        super().__init__(thinned(shared_out[:n_kept], samples_per_task, seed=seed))


def _draw(animals: Sequence[int], *, seed: int, number: int) -> list[int]:
    return sorted(shuffled(animals, seeded_generator("animals", seed, number))[:5])


def _tasks(groups: Sequence[Sequence[int]], train: Samples, test: Samples) -> list[Task]:
    n_shares = Counter(animal for animals in groups for animal in animals)
    taken: Counter[int] = Counter()
    tasks = []
    for i, animals in enumerate(groups):
        shares = []
        for animal in animals:
            rows = rows_of_classes(train, [animal])
            n = len(rows) // n_shares[animal]
            if n == 0:
                raise BrokenData(
                    f"{len(rows)} training samples of class {animal} for {n_shares[animal]} tasks: "
                    "the data is not complete, get it again"
                )
            shares.append(rows[taken[animal] * n : (taken[animal] + 1) * n])
            taken[animal] += 1
        units = tuple(N_AWA * i + animal for animal in animals)
        train_samples = _in_units(train.only(torch.cat(shares)), i)
        tasks.append(Task(i, units, train_samples, _in_units(test.only(rows_of_classes(test, animals)), i)))
    return tasks


def _in_units(samples: Samples, task: int) -> Samples:
    return replace(samples.of_task(task), y=N_AWA * task + samples.y)
