"""Tasks that come back."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from holdfast.streams._base import Stream, Task, seeded_generator
from holdfast.streams._wrapped import WrappedStream


class Recurring(WrappedStream):
    """All tasks of another stream, again and again: each round brings other samples of the same classes.

    The training samples of a task are divided at random between the rounds. Every return is a task of its own, tested
    on the test samples of the task that returns.

    Args:
        of: the stream that gives the tasks.
        rounds: how often each task comes.
    """

    def __init__(self, of: Stream, *, seed: int = 1234, rounds: Annotated[int, Field(ge=1)] = 2) -> None:
        smallest = min(len(task.train) for task in of)
        if rounds > smallest:
            raise ValueError(
                f"rounds={rounds}, but a task has {smallest} training samples: ask for {smallest} or fewer"
            )
        orders = [_order(task, seed).tensor_split(rounds) for task in of]
        tasks: list[Task] = []
        for turn in range(rounds):
            for task, order in zip(of, orders, strict=True):
                train, test = task.train.only(order[turn].sort().values), task.test
                number = len(tasks)
                classes = tuple(sorted(set(train.y.tolist())))
                tasks.append(Task(number, classes, train.of_task(number), test.of_task(number)))
        super().__init__(of, tasks)


def _order(task: Task, seed: int) -> Tensor:
    return torch.randperm(len(task.train), generator=seeded_generator("rounds", seed, task.id))
