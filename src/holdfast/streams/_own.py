"""Tasks made of a researcher's own data."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.streams._base import Samples, Task, TaskSubset, chosen
from holdfast.streams._split import class_groups, split_tasks


def tasks_by_class(
    train: Samples,
    test: Samples,
    n_classes: int,
    *,
    classes_per_task: int,
    n_tuning: int,
    seed: int,
    tasks: TaskSubset,
) -> list[Task]:
    """Return tasks of `classes_per_task` classes each, in an order that belongs to the seed; the last may have fewer.

    The first `n_tuning * classes_per_task` classes are held out for tuning.
    """
    if not 1 <= classes_per_task <= n_classes:
        raise ValueError(f"classes_per_task={classes_per_task}, but there are {n_classes} classes")
    n_held_out = n_tuning * classes_per_task
    if n_tuning < 0 or n_held_out >= n_classes:
        raise ValueError(
            f"n_tuning={n_tuning} tasks of {classes_per_task} classes leave none of {n_classes} classes to report"
        )
    held_out, reported = range(n_held_out), range(n_held_out, n_classes)
    tuning = class_groups(held_out, classes_per_task, seed=seed) if held_out else []
    return split_tasks(chosen(tuning, class_groups(reported, classes_per_task, seed=seed), tasks), train, test)


def renumbered(tasks: Sequence[Task], n_tuning: int, subset: TaskSubset) -> list[Task]:
    """Return the chosen tasks, numbered from 0; the first `n_tuning` are for tuning."""
    if not 0 <= n_tuning < len(tasks):
        raise ValueError(f"n_tuning={n_tuning}, but there are {len(tasks)} tasks: hold out 0 to {len(tasks) - 1}")
    kept = chosen(tasks[:n_tuning], tasks[n_tuning:], subset)
    return [
        Task(i, task.classes, task.train.of_task(i), task.test.of_task(i), in_order=task.in_order)
        for i, task in enumerate(kept)
    ]
