"""A learning curve is what one gets by stopping to test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast.build import build_stream
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.measured import curve_of, metrics_of
from holdfast.experiments.probes.curve import Curve
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.settings import Part
from tests.support.bare import bare
from tests.support.experiments import toy_experiment

EVERY = 5


def by_hand(experiment: Experiment) -> tuple[list[int], list[list[float]], list[float], list[float | None]]:
    """Learn the stream without a run and test at every fifth batch and at the end of each task."""
    stream = build_stream(experiment.stream, None, experiment.seed)
    learner = bare(input_shape=stream.input_shape, **experiment.learner_settings(stream.n_classes))
    steps, accuracies, seen, losses = [], [], [], []
    step, since, learned = 0, [], set()
    for t, task in enumerate(stream):
        learner.announce(task.classes, task.id)
        for i in range(task.n_steps(10)):
            batch = task.batch(i, size=10, seed=experiment.seed)
            since.append(learner.observe(batch.x, batch.y, batch.task))
            learned |= set(batch.y.tolist())
            step += 1
            is_end = i + 1 == task.n_steps(10)
            if is_end:
                learner.end_task()
            if step % EVERY == 0 or is_end:
                row, n_right, n = [], 0, 0
                for test in stream[: t + 1]:
                    right = [
                        int(c) == int(y) for c, y in zip(learner.predict(test.test[:].x), test.test.y, strict=True)
                    ]
                    row.append(sum(right) / len(right))
                    for r, y in zip(right, test.test.y.tolist(), strict=True):
                        if y in learned:
                            n_right, n = n_right + r, n + 1
                steps.append(step)
                accuracies.append(row)
                seen.append(n_right / n)
                losses.append(sum(since) / len(since) if since else None)
                since = []
    return steps, accuracies, seen, losses


@pytest.mark.parametrize("method", ["er", "drr"])
def test_a_curve_is_what_testing_by_hand_gives(method: str, tmp_path: Path) -> None:
    experiment = toy_experiment(method=method, lr=0.01)
    result = run(experiment, ResultStore(tmp_path), probes=[Part(name="curve", options={"every": EVERY})])
    steps, accuracies, seen, losses = by_hand(experiment)
    curve = curve_of(result.probes)
    assert curve is not None
    assert curve.steps == steps
    assert curve.samples == [10 * step for step in steps]
    for found, expected in zip(curve.accuracies, accuracies, strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    assert curve.seen == pytest.approx(seen, abs=1e-5)
    assert curve.losses == pytest.approx(losses)
    # The end of a task is a moment of the curve and a row of the matrix.
    ends = [curve.accuracies[moment] for moment in curve.learned]
    for end, row in zip(ends, result.accuracies, strict=True):
        assert end == pytest.approx([value for value in row if value is not None], abs=1e-5)
    # A_AUC, in the symbols of its paper, over moments that are not equally far apart.
    areas = [f * (n - m) for f, n, m in zip(seen, steps, [0, *steps], strict=False)]
    assert result.metrics["area_under_accuracy"] == pytest.approx(sum(areas) / steps[-1], abs=1e-4)
    assert result.metrics["average_anytime_accuracy"] == pytest.approx(
        np.mean([np.mean(r) for r in accuracies]), abs=1e-4
    )
    worst = [
        min(row[task] for row, step in zip(accuracies, steps, strict=True) if step > end)
        for task, end in enumerate((12, 24))
    ]
    assert result.metrics["minimum_accuracy"] == pytest.approx(np.mean(worst), abs=1e-4)
    last = accuracies[-1][-1] / 3 + 2 / 3 * np.mean(worst)
    assert result.metrics["worst_case_accuracy"] == pytest.approx(last, abs=1e-4)


def test_fewer_test_samples_lie_evenly_over_the_test_set(tmp_path: Path) -> None:
    few = Part(name="curve", options={"every": EVERY, "test_samples": 20})
    result = run(toy_experiment(), ResultStore(tmp_path), probes=[few])
    curve = curve_of(result.probes)
    assert curve is not None
    assert all(20 * value == pytest.approx(round(20 * value)) for row in curve.accuracies for value in row)


def test_joint_training_has_a_curve_without_the_metrics_of_tasks_in_turn(tmp_path: Path) -> None:
    stream = {"name": "joint", "of": "split_digits", "samples_per_task": 50}
    experiment = toy_experiment(stream=stream, method="finetune", setting="task")
    result = run(experiment, ResultStore(tmp_path), probes=[Part(name="curve", options={"every": 1})])
    curve = curve_of(result.probes)
    assert curve is not None
    assert {len(row) for row in curve.accuracies} == {5}
    assert set(metrics_of(result.probes)) - {"gigaflops_per_batch"} == {
        "area_under_accuracy",
        "average_anytime_accuracy",
    }


@pytest.mark.parametrize("options", [{"every": 0}, {"test_samples": 0}])
def test_a_curve_without_moments_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="give 1 or more"):
        Curve(**options)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": [5]},
        {"seen": [2.0, 0.5]},
        {"accuracies": [[0.5], [-0.5]]},
        {"samples": [100, 50]},
        {"learned": [2]},
        {"unknown": 1},
    ],
)
def test_a_stored_curve_that_is_none_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    result = run(toy_experiment(), ResultStore(tmp_path))
    whole = {
        "options": {},
        "steps": [5, 10],
        "samples": [50, 100],
        "accuracies": [[0.5], [0.5]],
        "seen": [0.5, 0.5],
        "losses": [1.0, None],
        "learned": [1],
    }
    document = result.model_dump(mode="json")
    type(result).model_validate(document | {"probes": {"curve": whole}})
    with pytest.raises(ValueError, match=r"curve|Extra"):
        type(result).model_validate(document | {"probes": {"curve": whole | change}})


def test_saved_moments_that_are_of_no_curve_are_refused() -> None:
    probe = Curve()
    with pytest.raises(ValueError, match="not of a learning curve"):
        probe.load_state_dict({**probe.state_dict(), "moments": [{"step": 1}]})
