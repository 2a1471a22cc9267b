"""Test-then-train against the standalone functions on the list of what was predicted rightly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.build import build_stream
from holdfast.experiments.anytime import (
    accuracy_by_class,
    faded_accuracy,
    prequential_accuracy,
    windowed_accuracy,
)
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.measured import prequential_of
from holdfast.experiments.probes.prequential import Prequential
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.settings import Part
from tests.support.bare import bare
from tests.support.experiments import toy_experiment

OPTIONS = {"window": 25, "fading": 0.9, "every": 7}


def by_hand(experiment: Experiment) -> tuple[list[bool], list[int]]:
    """Whether each sample of the stream is predicted before it is learned, and its class."""
    stream = build_stream(experiment.stream, None, experiment.seed)
    learner = bare(input_shape=stream.input_shape, **experiment.learner_settings(stream.n_classes))
    knows = experiment.setting != "free"
    right, classes = [], []
    for task in stream:
        if knows:
            learner.announce(task.classes, task.id)
        for i in range(task.n_steps(10)):
            batch = task.batch(i, size=10, seed=experiment.seed)
            if learner.n_observed:
                told = task.id if experiment.setting == "task" else None
                right += (learner.predict(batch.x, told) == batch.y).tolist()
            else:
                right += [False] * len(batch)
            classes += batch.y.tolist()
            learner.observe(batch.x, batch.y, batch.task if knows else None)
        if knows:
            learner.end_task()
    return right, classes


@pytest.mark.parametrize("setting", ["class", "free", "task"])
def test_it_is_what_predicting_by_hand_gives(setting: str, tmp_path: Path) -> None:
    experiment = toy_experiment(setting=setting)
    result = run(experiment, ResultStore(tmp_path), probes=[Part(name="prequential", options=OPTIONS)])
    found = prequential_of(result.probes)
    assert found is not None
    right, classes = by_hand(experiment)
    moments = [*range(7, 36, 7), 36]
    assert found.steps == moments
    ends = [10 * step - 1 for step in moments]
    assert found.overall == pytest.approx([prequential_accuracy(right[: end + 1]) for end in ends], abs=1e-5)
    assert found.window == pytest.approx(windowed_accuracy(right, 25)[ends].tolist(), abs=1e-5)
    assert found.faded == pytest.approx(faded_accuracy(right, 0.9)[ends].tolist(), abs=1e-5)
    shares = {int(y): n_right / n for y, (n_right, n) in found.by_class.items()}
    assert shares == accuracy_by_class(right, classes)
    assert result.metrics["prequential_accuracy"] == prequential_accuracy(right)
    assert result.metrics["prequential_class_accuracy"] == pytest.approx(sum(shares.values()) / len(shares))


@pytest.mark.parametrize("options", [{"window": 0}, {"every": 0}, {"fading": 0.0}, {"fading": 1.5}])
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Prequential(**options)


@pytest.mark.parametrize(
    "changed", [{"by_class": {0: [1]}}, {"by_class": {0: [3, 2]}}, {"moments": [[1.0]]}, {"n_right": 5}]
)
def test_a_saved_state_that_does_not_fit_is_refused(changed: dict[str, Any]) -> None:
    probe = Prequential()
    with pytest.raises(ValueError, match="saved"):
        probe.load_state_dict({**probe.state_dict(), **changed})
