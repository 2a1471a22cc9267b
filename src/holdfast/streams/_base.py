"""A stream is a sequence of tasks; a task gives any of its batches by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from holdfast.core.batch import NO_TASK, Batch

T = TypeVar("T")
TaskSubset = Literal["tuning", "report", "all"]


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows of a data set, read when asked for.

    Attributes:
        read: takes (k,) row numbers and gives the inputs (k, …), a copy.
        rows: (n,) the rows of the data set that belong here.
        y, task: (n,) the class (as numbered in the stream's head) and task of each.

    Example:
        >>> x = torch.arange(6.0).reshape(3, 2)
        >>> y, task = torch.tensor([0, 1, 0]), torch.zeros(3, dtype=torch.int64)
        >>> samples = Samples(lambda rows: x[rows], torch.arange(3), y, task)
        >>> samples[torch.tensor([2])].x
        tensor([[4., 5.]])
    """

    read: Callable[[Tensor], Tensor]
    rows: Tensor
    y: Tensor
    task: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice | Tensor) -> Batch:
        return Batch(self.read(self.rows[index]), self.y[index], self.task[index])

    def only(self, index: Tensor) -> Samples:
        """Return the samples at `index`, (k,) numbers or an (n,) mask, still unread."""
        return Samples(self.read, self.rows[index], self.y[index], self.task[index])

    def of_task(self, task: int) -> Samples:
        """Return the same samples, as samples of `task`."""
        return replace(self, task=torch.full_like(self.rows, task))


def all_rows(read: Callable[[Tensor], Tensor], y: Tensor) -> Samples:
    """Return every row of a data set with labels `y` (n,), of no task yet."""
    rows = torch.arange(len(y))
    return Samples(read, rows, y, torch.full_like(rows, NO_TASK))


@dataclass(eq=False)
class Task:
    """Task: samples to learn in one go, and samples to test on.

    Attributes:
        classes: that the training samples have.
        in_order: training samples come in the order of `train`, whatever the seed; else in one drawn by the seed.

    Example:
        >>> samples = all_rows(lambda rows: rows[:, None].float(), torch.tensor([0, 0, 1, 1, 1])).of_task(0)
        >>> task = Task(0, (0, 1), samples, samples)
        >>> task.n_steps(2), [len(task.batch(step, size=2, seed=7)) for step in range(3)]
        (3, [2, 2, 1])
    """

    id: int
    classes: tuple[int, ...]
    train: Samples
    test: Samples
    in_order: bool = False
    _orders: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)

    def n_steps(self, size: int) -> int:
        """Return the number of batches of `size`; the last one may be smaller."""
        return -(-len(self.train) // size)

    def batch(self, step: int, *, size: int, seed: int) -> Batch:
        """Batch number `step` in the order that belongs to `seed`: no iterator, so nothing to resume."""
        if self.in_order:
            return self.train[step * size : (step + 1) * size]
        if seed not in self._orders:
            generator = seeded_generator("order", seed, self.id)
            self._orders = {seed: torch.randperm(len(self.train), generator=generator)}
        return self.train[self._orders[seed][step * size : (step + 1) * size]]


class Stream(Sequence[Task]):
    """Tasks in the order in which they arrive.

    Attributes:
        n_classes: rows of the head over all tasks.
        input_shape: of one sample.
        scale, mean: what the model does to an input first: x * scale - mean.
        per_class_accuracy: whether accuracy is the mean over classes (AWA) instead of over samples.
        n_held_out: tasks of the data set that are for tuning.

    Example:
        >>> samples = all_rows(lambda rows: rows[:, None].float(), torch.tensor([0, 1])).of_task(0)
        >>> class Tiny(Stream):
        ...     n_classes, input_shape = 2, (1,)
        ...
        ...     def __init__(self, data=None, *, seed=0, tasks="report"):
        ...         super().__init__([Task(0, (0, 1), samples, samples)])
        >>> len(Tiny()), Tiny()[0].classes
        (1, (0, 1))
    """

    n_classes: int
    input_shape: tuple[int, ...]
    scale: float = 1.0
    mean: Tensor | float = 0.0
    per_class_accuracy: bool = False
    n_held_out: int = 3

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = list(tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        return self.tasks[index]

    def tests(self, learned: int) -> list[Task]:
        """Return the tasks to test on once `learned` tasks were learned."""
        return self.tasks[:learned]

    def announced(self, number: int) -> list[Task]:
        """Return the tasks whose classes are made known before task `number` (from 0) is learned."""
        return [self.tasks[number]]


def seeded_generator(purpose: str, *numbers: int) -> torch.Generator:
    """Return a generator that depends on its purpose, so that two uses of one seed do not go in step.

    Example:
        >>> one, same, other = (seeded_generator(name, 1).initial_seed() for name in ("order", "order", "weights"))
        >>> one == same, one == other
        (True, False)
    """
    words = [*purpose.encode(), *numbers]
    seed = int(np.random.SeedSequence(words).generate_state(2, np.uint64)[0])
    return torch.Generator().manual_seed(seed % 2**63)


def shuffled(values: Sequence[int], generator: torch.Generator) -> list[int]:
    """Return the values in an order drawn from `generator`.

    Example:
        >>> sorted(shuffled([3, 1, 2], seeded_generator("classes", 0)))
        [1, 2, 3]
    """
    return [values[i] for i in torch.randperm(len(values), generator=generator).tolist()]


def chosen(tuning: Sequence[T], report: Sequence[T], subset: TaskSubset) -> list[T]:
    """Return the tuning tasks, the reported tasks, or both."""
    subsets = {"tuning": tuning, "report": report, "all": [*tuning, *report]}
    if subset not in subsets:
        raise ValueError(f"tasks={subset!r}: expected 'tuning', 'report' or 'all'")
    if not subsets[subset]:
        raise ValueError(f"tasks={subset!r}, but this stream holds out no tasks for that: use tasks='report'")
    return list(subsets[subset])


def first(tasks: Sequence[T], n_tasks: int | None) -> list[T]:
    """Return the first `n_tasks` of the tasks, or all of them."""
    if n_tasks is None:
        return list(tasks)
    if not 1 <= n_tasks <= len(tasks):
        raise ValueError(f"n_tasks={n_tasks}, but the stream has {len(tasks)}: ask for 1 to {len(tasks)}")
    return list(tasks[:n_tasks])


def thinned(tasks: Sequence[Task], samples_per_task: int | None, *, seed: int) -> list[Task]:
    """Return the tasks with that many training samples each, drawn at random, or with all of them."""
    if samples_per_task is None:
        return list(tasks)
    return [replace(task, train=_fewer(task, samples_per_task, seed=seed)) for task in tasks]


def _fewer(task: Task, n: int, *, seed: int) -> Samples:
    available = len(task.train)
    if not 1 <= n <= available:
        raise ValueError(
            f"samples_per_task={n}, but task {task.id} has {available} training samples: ask for 1 to {available}"
        )
    order = torch.randperm(available, generator=seeded_generator("fewer samples", seed, task.id))
    return task.train.only(order[:n].sort().values)
