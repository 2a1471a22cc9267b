"""The confusion matrix counts what the accuracies count."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from holdfast.build import build_stream
from holdfast.experiments.probes.confusion import ConfusionPart
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.settings import Part


def test_its_diagonal_is_the_accuracy_at_the_end(tmp_path: Path) -> None:
    changes = {"stream.n_tasks": 2, "stream.samples_per_task": 60}
    experiment = load_recipe("split_digits").experiment("er", seed=1, changes=changes)
    result = run(experiment, ResultStore(tmp_path), probes=(Part(name="confusion"),))
    part = ConfusionPart.model_validate(result.probes["confusion"])
    tasks = [task.classes for task in build_stream(experiment.stream, None, experiment.seed)]
    by_class = part.by_class()
    assert by_class.keys() == {y for task in tasks for y in task}
    for classes, accuracy in zip(tasks, result.accuracies[-1], strict=True):
        right, n = (sum(by_class[y][i] for y in classes) for i in (0, 1))
        assert right / n == pytest.approx(accuracy)
    stored = ResultStore(tmp_path).find(experiment)
    assert stored is not None
    assert stored.probes == result.probes


@pytest.mark.parametrize("counts", [[(-1, 0, 1)], [(0, 0, 0)], [(0, 1, 2), (0, 1, 2)]])
def test_a_matrix_that_nobody_counted_is_refused(counts: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ValidationError):
        ConfusionPart(counts=counts)
