"""Contracts of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.build import build_stream
from holdfast.checks._base import Check, expect
from holdfast.learner import Learner
from holdfast.settings import Part
from holdfast.streams._base import Stream

SIZE = 7  # samples of a batch
MOST_TASKS = 3  # of which every sample is looked at

Build = Callable[[int], Stream]  # takes the seed


def stream_checks(part: Part, data: Path | None = None) -> Iterator[Check]:
    """Yield the checks of a stream; `data` is the folder of data sets."""
    build = partial(build_stream, part, data)
    for sentence, function in (
        ("tasks are numbered from 0, and so are their samples", check_numbers),
        ("classes have room in the head", check_classes),
        ("inputs have the stated shape and are finite", check_inputs),
        ("a batch is a copy", check_copies),
        ("any index gives the same samples as reading one by one", check_index),
        ("the batches of a task have each sample once, the same ones every time", check_batches),
        ("training and testing share no sample", check_no_overlap),
    ):
        yield Check(sentence, lambda _, function=function: function(build(0)))  # type: ignore[misc]
    yield Check("one seed makes one stream", lambda _: check_seed(build))
    yield Check("a learner learns its first batches", lambda _: check_learnable(build(0)))


def check_numbers(stream: Stream) -> None:
    """Check that tasks have ids from 0, and every sample has the task and one of the classes that its task states."""
    expect(len(stream) > 0, "the stream has no task")
    for number, task in enumerate(stream):
        expect(task.id == number, f"task {number} has the id {task.id}")
        for name, samples in (("training", task.train), ("test", task.test)):
            tasks = set(samples.task.tolist())
            expect(tasks == {number}, f"{name} samples of task {number} have the tasks {sorted(tasks)[:5]}")
            strange = set(samples.y.tolist()) - set(task.classes)
            expect(
                not strange,
                f"{name} samples of task {number} have classes {sorted(strange)[:5]} that it does not state",
            )


def check_classes(stream: Stream) -> None:
    """Check that all classes are whole numbers below `n_classes`."""
    for task in stream:
        beyond = [c for c in task.classes if not 0 <= c < stream.n_classes]
        expect(not beyond, f"task {task.id} has the classes {beyond[:5]}, and n_classes is {stream.n_classes}")


def check_inputs(stream: Stream) -> None:
    """Check that inputs have the stream's `input_shape`, labels and tasks are int64, and prepared inputs are finite."""
    for samples in (stream[0].train, stream[-1].test):
        batch = samples[torch.tensor([min(1, len(samples) - 1), 0])]
        shape = tuple(batch.x.shape)
        expect(
            shape == (2, *stream.input_shape),
            f"two samples have shape {shape}, and input_shape is {stream.input_shape}",
        )
        for name, column in (("y", batch.y), ("task", batch.task)):
            expect(column.dtype == torch.int64, f"{name} has dtype {column.dtype}, not torch.int64")
        prepared = batch.x * stream.scale - stream.mean
        expect(bool(torch.isfinite(prepared).all()), "inputs are NaN or infinite after scale and mean")


def check_copies(stream: Stream) -> None:
    """Check that writing to a batch changes nothing in the stream."""
    samples = stream[0].train
    before = samples[:3].x.clone()
    samples[:3].x.zero_()
    expect(torch.equal(samples[:3].x, before), "samples changed when a batch was written to: read is to return a copy")


def check_index(stream: Stream) -> None:
    """Check that samples at given numbers are those found one by one."""
    samples = stream[-1].train
    last = len(samples) - 1
    index = torch.tensor([min(2, last), 0, last, min(2, last)])
    batch = samples[index]
    for i, number in enumerate(index.tolist()):
        one = samples[number : number + 1]
        expect(torch.equal(batch.x[i], one.x[0]) and bool(batch.y[i] == one.y[0]), f"sample {number} differs")


def check_batches(stream: Stream) -> None:
    """Check that the batches of a task have each training sample once, and the same ones at a second reading."""
    for task in stream[:MOST_TASKS]:
        steps = range(task.n_steps(SIZE))
        batches = [task.batch(step, size=SIZE, seed=1).x for step in steps]
        expect(
            _rows(torch.cat(batches)) == _rows(task.train[:].x), f"task {task.id}: some samples never come, or twice"
        )
        again = task.batch(steps[-1], size=SIZE, seed=1).x
        expect(torch.equal(again, batches[-1]), f"task {task.id}: a batch that is read twice has other samples")


def check_no_overlap(stream: Stream) -> None:
    """Check that no test sample is a training sample of its task."""
    for task in stream:
        both = set(_rows(task.train[:].x)) & set(_rows(task.test[:].x))
        expect(not both, f"task {task.id} has {len(both)} samples in training and testing")


def check_seed(build: Build) -> None:
    """Check that two streams of one seed are the same."""
    expect(_content(build(1)) == _content(build(1)), "two streams of one seed differ: draw from seeded_generator")


def check_learnable(stream: Stream) -> None:
    """Check that a small learner takes the batches of a stream as they come."""
    settings: dict[str, Any] = {"setting": "domain", "memory": 20, "n_classes": stream.n_classes, "lr": 0.001}
    learner = Learner(
        "er",
        backbone={"name": "mlp", "hidden": [8]},
        input_shape=stream.input_shape,
        scale=stream.scale,
        mean=stream.mean,
        **settings,
    )
    for task in stream[:MOST_TASKS]:
        for step in range(min(3, task.n_steps(SIZE))):
            batch = task.batch(step, size=SIZE, seed=0)
            learner.observe(batch.x, batch.y, batch.task)


def _content(stream: Stream) -> list[tuple[list[int], list[float]]]:
    """Return the classes and the first input of each task."""
    return [(task.train.y.tolist(), task.train[:1].x.flatten().tolist()) for task in stream]


def _rows(x: Tensor) -> list[bytes]:
    return sorted(row.numpy().tobytes() for row in x)
