"""All tasks of another stream at once."""

from __future__ import annotations

from holdfast.streams._base import Stream, Task
from holdfast.streams._pool import pooled, train_pool
from holdfast.streams._wrapped import WrappedStream


class Joint(WrappedStream):
    """One task that mixes the samples of all tasks of another stream: what could be reached without drift.

    A sample keeps its class and its task, and testing is task by task as in that stream.
    """

    def __init__(self, of: Stream) -> None:
        classes = sorted(set().union(*(task.classes for task in of)))
        super().__init__(of, [Task(0, tuple(classes), train_pool(of), pooled([task.test for task in of]))])

    def tests(self, learned: int) -> list[Task]:
        return list(self.of) if learned else []

    def announced(self, number: int) -> list[Task]:
        return list(self.of)
