"""Contracts of a probe."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from holdfast.checks._base import Check, expect
from holdfast.checks.same import assert_same
from holdfast.checks.toy import Toy
from holdfast.core.checkpoint import CHECKPOINT, read_checkpoint
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.run import Interrupted, run
from holdfast.settings import Part

TIMED = {"seconds", "seconds_testing", "versions"}  # fields of a result that differ from run to run
STOPS = (1, 4, 3, 6)  # steps after which a run is stopped: in and between tasks of six batches


class Dropping(torch.nn.Module):
    """A backbone that draws from torch's global generator, and has statistics of batches."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(input_shape[0], 12)
        self.normal = torch.nn.BatchNorm1d(12)
        self.n_features = 12

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(torch.relu(self.normal(self.layer(x))), 0.5, self.training)


def probe_checks(part: Part) -> Iterator[Check]:
    """Yield the checks of a probe."""
    yield Check("it changes nothing that is learned", partial(check_probe_changes_nothing, part))
    yield Check("a run that was stopped and continued leaves the same result", partial(check_probe_resumes, part))
    yield Check("its part of the result can be written as JSON", partial(check_probe_result, part))


def toy_experiment(**changes: Any) -> Experiment:
    """Return a run of three short tasks whose learner has all kinds of state."""
    settings = {
        "stream": {"name": f"{Toy.__module__}:Toy", "n_train": 60},
        "method": {"name": "er", "average": 0.9},
        "setting": "class",
        "backbone": {"name": f"{__name__}:Dropping"},
        "memory": 30,
    }
    return Experiment.model_validate(settings | changes)


def check_probe_changes_nothing(part: Part, folder: Path) -> Result:
    """Check that a run with the probe learns what a run without it learns; returns the result."""
    experiment = toy_experiment()
    plain, probed = ResultStore(folder / "plain"), ResultStore(folder / "probed")
    expected = run(experiment, plain)
    found = run(experiment, probed, probes=[part])
    assert_same(left_behind(probed, experiment), left_behind(plain, experiment))
    expect(found.experiment.digest == expected.experiment.digest, "the run with the probe is another experiment")
    return found


def check_probe_resumes(part: Part, folder: Path) -> None:
    """Check that a run that is stopped several times leaves the same result and the same state."""
    experiment = toy_experiment()
    whole, stopped = ResultStore(folder / "whole"), ResultStore(folder / "stopped")
    found = run(experiment, whole, probes=[part])
    for n_steps in STOPS:
        asked = iter(range(1, 100))
        try:
            run(experiment, stopped, probes=[part], stop=lambda asked=asked, n=n_steps: next(asked) == n)  # type: ignore[misc]
        except Interrupted:
            continue
        expect(False, "the run did not stop")
    resumed = run(experiment, stopped, probes=[part])
    assert_same(without_time(resumed), without_time(found), "result")
    assert_same(left_behind(stopped, experiment), left_behind(whole, experiment))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the finished run has all that was asked for
        run(experiment, stopped, probes=[part])


def check_probe_result(part: Part, folder: Path) -> None:
    """Check that the result of a probe is plain data, and reads back as it was written."""
    experiment, store = toy_experiment(), ResultStore(folder)
    found = run(experiment, store, probes=[part])
    text = json.dumps(found.model_dump(mode="json")["probes"].get(part.name, {}))
    read = store.find(experiment)
    expect(read is not None, "the result cannot be read back")
    assert read is not None
    again = json.dumps(read.model_dump(mode="json")["probes"].get(part.name, {}))
    expect(again == text, "the result reads back otherwise than it was written")


def left_behind(store: ResultStore, experiment: Experiment) -> dict[str, Any]:
    """Return the state of a run without its probes, except those of every run, which take no time."""
    state = read_checkpoint(store.folder(experiment) / CHECKPOINT)
    state["probes"] = {name: state["probes"][name] for name in ("accuracy", "drift")}
    return state


def without_time(result: Result) -> dict[str, Any]:
    """Return a result as plain data, without durations and versions."""
    return result.model_dump(mode="json", exclude=TIMED)
