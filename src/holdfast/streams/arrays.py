"""Arrays of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from torch import Tensor

from holdfast.data.own import own_place, read_arrays
from holdfast.data.places import BrokenData
from holdfast.streams._base import Samples, Stream, Task, TaskSubset, all_rows, first, thinned
from holdfast.streams._own import renumbered, tasks_by_class

SAMPLES = ("x_train", "y_train", "x_test", "y_test")
TASK_IDS = ("task_train", "task_test")
ROWS_AT_ONCE = 4096


class Arrays(Stream):
    """Arrays of one's own: x_train, y_train, x_test and y_test, from files of NumPy or from Python.

    Rows are samples of any shape. Bytes stay bytes and are scaled to 0 to 1; other numbers become float32. Labels are
    whole numbers or texts, and their sorted values are the classes.

    | split | tasks | order of samples in a task |
    |---|---|---|
    | `classes` | `classes_per_task` classes each, in an order that belongs to the seed | drawn by the seed |
    | `given` | the values of the arrays task_train and task_test, sorted | drawn by the seed |
    | `order` | `parts` equal parts of the rows, in their order | as in the array |

    Args:
        data: the arrays by name, or the folder that `path` is looked for in.
        path: an .npz file, or a folder with one .npy file an array; below the folder of the data sets, or from the
            current folder.
        channels: where a sample of three axes has its channels.
        n_tuning: the first so many tasks are held out for tuning.

    Example:
        >>> x, y = np.arange(16.0).reshape(8, 2), np.array(["cat", "dog", "cow", "hen"] * 2)
        >>> arrays = {"x_train": x[:4], "y_train": y[:4], "x_test": x[4:], "y_test": y[4:]}
        >>> stream = Arrays(arrays, classes_per_task=2, seed=0)
        >>> [len(task.classes) for task in stream], stream.classes
        ([2, 2], ('cat', 'cow', 'dog', 'hen'))
    """

    def __init__(
        self,
        data: Path | Mapping[str, ArrayLike] | None = None,
        *,
        seed: int = 1234,
        path: str = "",
        split: Literal["classes", "given", "order"] = "classes",
        classes_per_task: Annotated[int, Field(ge=1)] = 2,
        parts: Annotated[int, Field(ge=1)] = 5,
        channels: Literal["first", "last"] = "first",
        n_tuning: Annotated[int, Field(ge=0)] = 0,
        tasks: TaskSubset = "report",
        n_tasks: Annotated[int, Field(ge=1)] | None = None,
        samples_per_task: Annotated[int, Field(ge=1)] | None = None,
    ) -> None:
        names = (*SAMPLES, *TASK_IDS) if split == "given" else SAMPLES
        if isinstance(data, Mapping):
            arrays, place = _from_python(data, names), "the arrays"
        else:
            file = own_place(path, data, example="my_data.npz")
            arrays, place = read_arrays(file, names), str(file)
        if channels not in ("first", "last"):
            raise ValueError(f"channels={channels!r}: expected 'first' or 'last'")
        x_train, x_test = (_inputs(arrays[f"x_{side}"], f"{place}: x_{side}") for side in ("train", "test"))
        if x_train.shape[1:] != x_test.shape[1:]:
            raise BrokenData(f"{place}: samples of {x_train.shape[1:]} to learn and of {x_test.shape[1:]} to test")
        if x_train.dtype != x_test.dtype:
            raise BrokenData(f"{place}: x_train is {x_train.dtype} and x_test {x_test.dtype}, expected one type")
        y_train, y_test, names = _numbered(arrays["y_train"], arrays["y_test"], place)
        _same_length(x_train, y_train, f"{place}: x_train", "y_train")
        _same_length(x_test, y_test, f"{place}: x_test", "y_test")
        turned = channels == "last" and x_train.ndim == 4
        train, test = _samples(x_train, y_train, turned=turned), _samples(x_test, y_test, turned=turned)
        if split == "classes":
            if untested := sorted(set(range(len(names))) - set(y_test.tolist())):
                raise BrokenData(f"{place}: no sample of class {names[untested[0]]!r} in y_test, expected some of each")
            made = tasks_by_class(
                train,
                test,
                len(names),
                classes_per_task=classes_per_task,
                n_tuning=n_tuning,
                seed=seed,
                tasks=tasks,
            )
        elif split == "given":
            made = renumbered(_given(train, test, arrays, place), n_tuning, tasks)
        elif split == "order":
            made = renumbered(_in_order(train, test, parts, place), n_tuning, tasks)
        else:
            raise ValueError(f"split={split!r}: expected 'classes', 'given' or 'order'")
        self.classes = names
        self.n_classes = len(names)
        self.input_shape = tuple(train[:1].x.shape[1:])
        self.scale = 1 / 255 if x_train.dtype == np.uint8 else 1.0
        self.n_held_out = n_tuning
        super().__init__(thinned(first(made, n_tasks), samples_per_task, seed=seed))


def _from_python(arrays: Mapping[str, ArrayLike], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    if absent := [name for name in names if name not in arrays]:
        raise ValueError(f"no array '{absent[0]}' among {', '.join(arrays) or 'none'}: give {', '.join(names)}")
    return {name: np.asarray(arrays[name]) for name in names}


def _inputs(x: NDArray[Any], name: str) -> NDArray[Any]:
    """Check inputs (n, …): numbers, and all of them finite."""
    if x.ndim < 2 or not x.size:
        raise BrokenData(f"{name} has the shape {x.shape}, expected (n, …) with a row for each sample")
    if x.dtype.kind not in "buif":
        raise BrokenData(f"{name} is {x.dtype}, expected numbers")
    if x.dtype.kind == "f":
        for start in range(0, len(x), ROWS_AT_ONCE):
            rows = np.isfinite(x[start : start + ROWS_AT_ONCE]).reshape(len(x[start : start + ROWS_AT_ONCE]), -1)
            if not rows.all():
                row = start + int((~rows.all(axis=1)).argmax())
                raise BrokenData(f"{name} row {row} has a number that is infinite or none: mend it or leave it out")
    return x


def _numbered(
    y_train: NDArray[Any], y_test: NDArray[Any], place: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[Any, ...]]:
    """Return labels numbered from 0, in the order of their sorted values in `y_train`, and those values."""
    for name, y in (("y_train", y_train), ("y_test", y_test)):
        if y.ndim != 1 or y.dtype.kind not in "buiU":
            raise BrokenData(f"{place}: {name} is {y.dtype}{y.shape}, expected a whole number or a text for each row")
    if (y_train.dtype.kind == "U") != (y_test.dtype.kind == "U"):
        raise BrokenData(f"{place}: y_train is {y_train.dtype} and y_test {y_test.dtype}, expected one kind of label")
    values, train = np.unique(y_train, return_inverse=True)
    unknown = np.setdiff1d(y_test, values)
    if len(unknown):
        raise BrokenData(f"{place}: label {unknown[0].item()!r} of y_test is nowhere in y_train")
    return train.astype(np.int64), np.searchsorted(values, y_test).astype(np.int64), tuple(values.tolist())


def _same_length(x: NDArray[Any], other: NDArray[Any], name: str, other_name: str) -> None:
    if len(x) != len(other):
        raise BrokenData(f"{name} has {len(x):,} rows and {other_name} {len(other):,}, expected as many of each")


def _samples(x: NDArray[Any], y: NDArray[np.int64], *, turned: bool) -> Samples:
    return all_rows(partial(_rows, x, turned), torch.from_numpy(y))


def _rows(x: NDArray[Any], turned: bool, rows: Tensor) -> Tensor:
    """Return a copy of rows (k,), bytes as bytes and half precision as it is, all else as float32."""
    some = x[rows.numpy()]
    if some.dtype not in (np.uint8, np.float16):
        some = some.astype(np.float32)
    if turned:
        some = np.ascontiguousarray(some.transpose(0, 3, 1, 2))
    return torch.from_numpy(some)


def _given(train: Samples, test: Samples, arrays: Mapping[str, NDArray[Any]], place: str) -> list[Task]:
    """Return a task for each value of task_train."""
    ids = {}
    for name, samples in zip(TASK_IDS, (train, test), strict=True):
        ids[name] = arrays[name]
        if ids[name].ndim != 1 or ids[name].dtype.kind not in "ui":
            raise BrokenData(f"{place}: {name} is {ids[name].dtype}{ids[name].shape}, expected a whole number a row")
        _same_length(ids[name], samples.rows.numpy(), f"{place}: {name}", f"x_{name.removeprefix('task_')}")
    values = np.unique(ids["task_train"])
    if odd := sorted(set(np.unique(ids["task_test"]).tolist()) ^ set(values.tolist())):
        lacking = "task_test" if odd[0] in values else "task_train"
        raise BrokenData(f"{place}: no sample of task {odd[0]} in {lacking}, expected every task in both")
    picked = [
        (torch.from_numpy(ids["task_train"] == value), torch.from_numpy(ids["task_test"] == value)) for value in values
    ]
    return [_task(train.only(of_train), test.only(of_test)) for of_train, of_test in picked]


def _in_order(train: Samples, test: Samples, parts: int, place: str) -> list[Task]:
    """Return equal parts of the rows, in their order."""
    shortest = min(len(train), len(test))
    if not 1 <= parts <= shortest:
        raise ValueError(
            f"parts={parts}, but {place} have {shortest} rows to learn or to test: ask for 1 to {shortest}"
        )

    def part(samples: Samples, i: int) -> Samples:
        return samples.only(torch.arange(i * len(samples) // parts, (i + 1) * len(samples) // parts))

    return [_task(part(train, i), part(test, i), in_order=True) for i in range(parts)]


def _task(train: Samples, test: Samples, *, in_order: bool = False) -> Task:
    return Task(0, tuple(sorted(set(train.y.tolist()))), train, test, in_order=in_order)
