"""Permuted MNIST."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from holdfast.data.layouts import Rows, read_idx
from holdfast.data.places import broken, data_root
from holdfast.streams._base import Stream, TaskSubset, chosen, first, thinned
from holdfast.streams._permuted import permuted_tasks

N_VALIDATION = 5000  # the first rows of the training file, set aside as in TensorFlow's MNIST


class PermutedMnist(Stream):
    """Ten digits again and again, each task with the pixels in an order of its own.

    20 tasks of 55,000 training and 10,000 test samples, of which 3 are for tuning and 17 are reported.
    Inputs are (784,) uint8, and all tasks share one head of 10 classes.

    Goodfellow et al., "An Empirical Investigation of Catastrophic Forgetting", ICLR 2014; with the
    numbers of Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019.
    """

    n_classes = 10
    input_shape = (784,)
    scale = 1 / 255

    def __init__(
        self,
        data: Path | None = None,
        *,
        seed: int = 1234,
        tasks: TaskSubset = "report",
        n_tasks: Annotated[int, Field(ge=1)] | None = None,
        samples_per_task: Annotated[int, Field(ge=1)] | None = None,
    ) -> None:
        numbers = first(chosen(range(3), range(3, 20), tasks), n_tasks)
        root = data_root(data)
        x, y = _read(root, "train")
        if len(y) <= N_VALIDATION:
            raise broken("mnist", root / "mnist", f"{len(y)} training images", f"more than {N_VALIDATION:,}")
        train = (x[N_VALIDATION:], y[N_VALIDATION:])
        permuted = permuted_tasks(numbers, train, _read(root, "t10k"), seed=seed)
        super().__init__(thinned(permuted, samples_per_task, seed=seed))


def _read(root: Path, part: str) -> Rows:
    x = read_idx(root, f"mnist/{part}-images-idx3-ubyte", item_shape=(28, 28))
    y = read_idx(root, f"mnist/{part}-labels-idx1-ubyte")
    if len(x) != len(y):
        raise broken("mnist", root / "mnist", f"{len(x)} images and {len(y)} labels in {part}", "as many of each")
    if y.max(initial=0) > 9:
        raise broken("mnist", root / "mnist", f"label {y.max()} in {part}", "0 to 9")
    return x.reshape(-1, 784), y.astype(np.int64)
