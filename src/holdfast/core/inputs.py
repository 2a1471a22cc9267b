"""Checks at the door: inputs, classes and tasks that a caller gives become tensors, or a ValueError says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.batch import NO_TASK
from holdfast.core.classes import MAX_TASKS, Setting, learns_by_task, predicts_by_task

Array = Tensor | np.ndarray[Any, Any] | Sequence[Any]
MAX_CLASSES = 100_000  # a growing head takes no label beyond: it is more likely a mistake than a class
MAX_WEIGHT = 1e15  # of a sample; more is more likely a mistake
MAX_INPUT = 1e15  # beyond, the variance of a batch may be more than a float32 can hold
INPUT_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)


def checked_inputs(x: Array, *, shape: tuple[int, ...] | None, dtype: torch.dtype | None) -> Tensor:
    """(n, …) Return the inputs as bytes or finite floats.

    Args:
        shape: of one sample; None if it is not known yet.
        dtype: of the inputs before; None if these are the first.

    Example:
        >>> checked_inputs([[1, 2]], shape=(2,), dtype=None)
        tensor([[1., 2.]])
        >>> checked_inputs([1, 2], shape=(2,), dtype=None)
        Traceback (most recent call last):
        ...
        ValueError: x has shape (2,), which is one sample: add a batch dimension, as in x[None]
    """
    from_list = not isinstance(x, Tensor | np.ndarray)
    inputs = as_tensor(x, "x")
    if inputs.dtype == torch.float64 or (from_list and inputs.dtype == torch.int64):
        inputs = inputs.float()
    if inputs.dtype not in INPUT_DTYPES:
        raise ValueError(f"x has dtype {_short(inputs.dtype)}: give bytes (uint8) or floats")
    if dtype is not None and inputs.dtype != dtype:
        raise ValueError(f"x has dtype {_short(inputs.dtype)}, but this learner began with {_short(dtype)}: convert it")
    _check_shape(tuple(inputs.shape), shape)
    # One number to compare, and NaN is below nothing: several times faster than to ask each whether it is finite.
    if inputs.dtype != torch.uint8 and not inputs.abs().max().item() <= MAX_INPUT:
        bad = (~(inputs.abs() <= MAX_INPUT)).flatten(1).any(dim=1).nonzero().flatten().tolist()
        raise ValueError(f"x has NaN, infinite or absurdly large numbers in rows {_few(bad)}: drop or mend them")
    return inputs


def checked_classes(y: Array, n: int, *, room: int | None) -> tuple[Tensor, int]:
    """(n,) Return the classes as whole numbers, and how many classes there have to be for them.

    Args:
        room: of the model; None if it grows.

    Example:
        >>> checked_classes([0, 3], 2, room=None)
        (tensor([0, 3]), 4)
    """
    classes = whole_numbers(y, "y", n)
    numbers = classes.tolist()  # a few numbers are compared faster outside torch
    lowest, highest = min(numbers), max(numbers)
    if lowest < 0:
        raise ValueError(f"label {lowest} is negative: number the classes from 0")
    if room is not None and highest >= room:
        raise ValueError(
            f"label {highest}, but the model has room for {room} classes: build it with n_classes={highest + 1} "
            "or more, or without n_classes to let it grow"
        )
    if highest >= MAX_CLASSES:
        raise ValueError(f"label {highest} would make a head of {highest + 1} rows: number the classes from 0")
    return classes, highest + 1


def checked_tasks(task: int | Array | None, n: int, setting: Setting, *, learning: bool) -> Tensor:
    """(n,) Return the task of each sample; NO_TASK where the setting does not know it.

    Example:
        >>> checked_tasks(2, 3, "task", learning=True)
        tensor([2, 2, 2])
    """
    verb, wanted = ("observe", learns_by_task) if learning else ("predict", predicts_by_task)
    if not wanted(setting):
        if task is not None:
            raise ValueError(f"{verb} got a task, but the setting '{setting}' does not know it then: leave it out")
        return torch.full((n,), NO_TASK, dtype=torch.int64)
    if task is None:
        raise ValueError(
            f"{verb} got no task, but the setting '{setting}' needs it: pass task=…, or build with setting='free'"
        )
    tasks = whole_numbers(_for_each(task, n), "task", n)
    numbers = set(tasks.tolist())
    if min(numbers) < 0 or max(numbers) >= MAX_TASKS:
        raise ValueError(f"task {min(numbers)} to {max(numbers)}: number the tasks from 0 to {MAX_TASKS - 1}")
    return tasks


def column_names_of(x: Any) -> list[str]:
    """Return the names of the columns of a frame; none for a tensor, an array or a list."""
    names = getattr(x, "columns", None)
    return [] if names is None or not hasattr(x, "to_numpy") else [str(name) for name in names]


def as_array(values: Any) -> Any:
    """Return a series of pandas as an array; anything else as it is."""
    return np.asarray(values) if hasattr(values, "to_numpy") else values


def check_column_names(names: Sequence[str], known: Sequence[str], n_columns: int) -> None:
    """Raise ValueError unless there is a name for each column, and the names stand in the order known before.

    Example:
        >>> check_column_names(["b", "a"], ["a", "b"], 2)
        Traceback (most recent call last):
        ...
        ValueError: the columns are ['b', 'a'], but were ['a', 'b'] before: put them into that order
    """
    if len(names) != n_columns:
        raise ValueError(f"{len(names)} names for {n_columns} columns: give one a column")
    if list(names) != list(known) and sorted(names) == sorted(known):
        raise ValueError(f"the columns are {list(names)}, but were {list(known)} before: put them into that order")


def checked_weights(weights: float | Array | None, n: int) -> Tensor | None:
    """(n,) Return the weight of each sample, float32; None where each is 1.

    Args:
        weights: one for each of the samples, or one number for all.

    Example:
        >>> checked_weights([1.0, 0.5], 2), checked_weights(1.0, 2)
        (tensor([1.0000, 0.5000]), None)
    """
    if weights is None:
        return None
    given = as_tensor(weights, "sample_weight")  # type: ignore[arg-type]
    if given.is_complex():
        raise ValueError("sample_weight has complex numbers: give numbers from 0")
    found = (given.expand(n) if given.ndim == 0 else given).to("cpu", torch.float32)
    if found.shape != (n,):
        raise ValueError(f"sample_weight has shape {tuple(found.shape)} for {n} samples: give ({n},), or one number")
    fits = (found >= 0) & (found <= MAX_WEIGHT)  # NaN does not
    if not bool(fits.all()):
        bad = (~fits).nonzero().flatten().tolist()
        raise ValueError(f"sample_weight is NaN, negative or above {MAX_WEIGHT:.0e} in rows {_few(bad)}: mend it")
    return None if bool((found == 1).all()) else found


def kept_rows(values: Any, kept: Tensor, name: str) -> Any:
    """Return the entries of `values` where `kept` (n,) is true; ValueError if there are not n.

    Args:
        name: of the argument, for messages.
    """
    if isinstance(values, str | bytes | int | None):
        return values  # one for all, or nothing that has entries: checked elsewhere
    if isinstance(values, Tensor) and values.ndim == 0:
        return values
    if len(values) != len(kept):
        raise ValueError(f"{name} has {len(values)} entries for {len(kept)} samples: give one a sample")
    if isinstance(values, Tensor):
        return values[kept.to(values.device)]
    if isinstance(values, np.ndarray):
        return values[kept.numpy()]
    return [value for value, is_kept in zip(values, kept.tolist(), strict=True) if is_kept]


def whole_numbers(value: Array, name: str, n: int) -> Tensor:
    """(n,) Return whole numbers as int64.

    Args:
        name: of the argument, for messages.
    """
    numbers = as_tensor(value, name)
    if numbers.shape != (n,):
        raise ValueError(f"{name} has shape {tuple(numbers.shape)} for {n} samples: give ({n},), one number a sample")
    if n == 0:
        raise ValueError(f"{name} is empty: give at least one")
    if numbers.dtype == torch.int64:
        return numbers
    if numbers.dtype == torch.bool or numbers.is_complex():
        raise ValueError(f"{name} has dtype {_short(numbers.dtype)}: give whole numbers")
    whole = numbers.to(torch.int64)
    if numbers.is_floating_point() and not torch.equal(whole.to(numbers.dtype), numbers):
        bad = (whole.to(numbers.dtype) != numbers).nonzero().flatten().tolist()
        raise ValueError(f"{name} is not whole in rows {_few(bad)}: give whole numbers")
    return whole


def as_tensor(value: Array, name: str) -> Tensor:
    """Return the numbers as a tensor without gradient; ValueError if they are none.

    Args:
        name: of the argument, for messages.
    """
    if isinstance(value, Tensor):
        return value.detach()
    try:
        array = np.asarray(value)
        if not array.flags.writeable:
            array = array.copy()
        return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} cannot be read as numbers: {error}") from error


def _check_shape(shape: tuple[int, ...], expected: tuple[int, ...] | None) -> None:
    if expected is not None and shape == expected:
        raise ValueError(f"x has shape {shape}, which is one sample: add a batch dimension, as in x[None]")
    if expected is not None and shape[1:] != expected:
        wanted = ", ".join(map(str, expected))
        raise ValueError(f"x has shape {shape}, but this learner takes (n, {wanted}): reshape it")
    if len(shape) < 2:
        raise ValueError(f"x has shape {shape}: give (n, …), one row a sample")
    if 0 in shape:
        raise ValueError(f"x has shape {shape}, which holds nothing: give at least one sample")


def _for_each(task: int | Array, n: int) -> Array:
    """Return one task for each of n samples, where one number is given for all."""
    if isinstance(task, int | np.integer):
        return [int(task) if not isinstance(task, bool) else task] * n
    return task.expand(n) if isinstance(task, Tensor) and task.ndim == 0 else task


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _few(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:5]))
    return shown if len(rows) <= 5 else f"{shown} and {len(rows) - 5} more"
