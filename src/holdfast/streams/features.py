"""Features that were computed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from holdfast.streams._base import Stream, Task
from holdfast.streams._feature_file import FeatureFile, find_features, read_features
from holdfast.streams._wrapped import WrappedStream


class Features(WrappedStream):
    """The tasks of another stream with stored features as inputs, so that no backbone runs while learning.

    'holdfast features' makes the file. Its name holds a checksum of its content. Learn with the backbone `identity`.

    Args:
        of: the stream whose tasks are learned; its data has to be there for classes and tasks.
        cache: the name of the file, in the folder `features` of the data or of the user's cache. Without the checksum
            it names the only file of that stream and backbone.
    """

    def __init__(self, of: Stream, data: Path | None = None, *, cache: str) -> None:
        path = find_features(cache, data)
        stored = read_features(path)
        super().__init__(of, [_swapped(task, stored, path) for task in of])
        self.input_shape = (stored.train.features.shape[1],)
        self.scale, self.mean = 1.0, 0.0
        self.cache = path.stem


def _swapped(task: Task, stored: FeatureFile, path: Path) -> Task:
    """Give the task with stored features as inputs."""
    if not (stored.train.holds(task.train.rows) and stored.test.holds(task.test.rows)):
        raise ValueError(f"{path} has no features of some samples of task {task.id}: it was made for another data set")
    train, test = replace(task.train, read=stored.train.read), replace(task.test, read=stored.test.read)
    return replace(task, train=train, test=test)
