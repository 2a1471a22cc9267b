"""Streams that are made of another stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from holdfast.core.batch import NO_TASK
from holdfast.streams._base import Samples, Stream, Task
from holdfast.streams._pool import pooled, slices, train_pool


class WrappedStream(Stream):
    """A stream over the data of another, `of`: the same inputs and classes in other tasks.

    On the command line `of` is the name of the other stream, or {name = …, option = …}; options that the wrapping
    stream does not have are the other's.

    Args:
        of: the stream that gives the samples.
        seed: decides what is drawn here; the inner stream is built with the same seed.
    """

    def __init__(self, of: Stream, tasks: Sequence[Task]) -> None:
        self.of = of
        self.n_classes = of.n_classes
        self.input_shape = of.input_shape
        self.scale = of.scale
        self.mean = of.mean
        self.per_class_accuracy = of.per_class_accuracy
        self.n_held_out = of.n_held_out
        super().__init__(tasks)


class BlurredStream(WrappedStream):
    """A stream whose tasks share classes, so that there are no tasks to test on: tested on all classes seen so far.

    A table of accuracies has one column then, and nothing is said of forgetting by task.

    Args:
        draw: gives the part (k,) of each task, of the pooled training samples.
        in_order: samples come in the order of their part; else in one drawn by the seed of the run.
    """

    def __init__(self, of: Stream, draw: Callable[[Samples], Sequence[Tensor]], *, in_order: bool = False) -> None:
        train, test = train_pool(of), pooled([task.test for task in of])
        super().__init__(of, slices(train, test, draw(train), in_order=in_order))

    def tests(self, learned: int) -> list[Task]:
        if not learned:
            return []
        learned_tasks = self.tasks[:learned]
        classes = sorted(set().union(*(task.classes for task in learned_tasks)))
        test = pooled([task.test for task in learned_tasks])
        return [Task(NO_TASK, tuple(classes), learned_tasks[-1].train, test)]
