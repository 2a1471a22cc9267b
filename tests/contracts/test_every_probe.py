"""What every probe has to hold: it changes nothing that is learned, and a killed run leaves the same part."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast import Learner
from holdfast.core.checkpoint import CHECKPOINT, read_checkpoint
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probes._logger import Logger
from holdfast.experiments.probing import find_probe, probe_names
from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.run import Interrupted, run
from holdfast.parts import names
from holdfast.settings import Part
from tests.support.same import assert_same
from tests.support.toy import Toy, toy_batches

from .test_methods import learner_of

OPTIONS: dict[str, dict[str, Any]] = {"curve": {"every": 5}, "prequential": {"every": 5, "window": 20}}
PACKAGES = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
TIMED = {"seconds", "seconds_testing", "versions"}


class Dropping(torch.nn.Module):
    """A backbone that draws from torch's global generator, and has statistics of batches."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(input_shape[0], 12)
        self.normal = torch.nn.BatchNorm1d(12)
        self.n_features = 12

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(torch.relu(self.normal(self.layer(x))), 0.5, self.training)


def experiment_of(**changes: Any) -> Experiment:
    settings = {
        "stream": {"name": f"{Toy.__module__}:Toy", "n_train": 60},
        "method": {"name": "er", "average": 0.9},
        "setting": "class",
        "backbone": {"name": f"{__name__}:Dropping"},
        "memory": 30,
    }
    return Experiment.model_validate(settings | changes)


def part_of(name: str, folder: Path) -> Part:
    if name in PACKAGES and find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{PACKAGES[name]} is not installed: pip install 'holdfast[{name}]'")
    found = find_probe(name)
    to = {"to": str(folder / "log")} if issubclass(found, Logger) and found.needs_place else {}
    return Part(name=name, options={**to, **OPTIONS.get(name, {})})


def left_behind(store: ResultStore, experiment: Experiment) -> dict[str, Any]:
    """The state of the run without its probes but those of every run, which take no time."""
    state = read_checkpoint(store.folder(experiment) / CHECKPOINT)
    state["probes"] = {name: state["probes"][name] for name in ("accuracy", "drift")}
    return state


@pytest.mark.parametrize("name", probe_names())
def test_a_probe_changes_nothing_that_is_learned_and_a_run_that_was_stopped_leaves_the_same(
    name: str, tmp_path: Path
) -> None:
    experiment, part = experiment_of(), part_of(name, tmp_path)
    plain, probed, stopped = (ResultStore(tmp_path / each) for each in ("plain", "probed", "stopped"))
    expected = run(experiment, plain)
    found = run(experiment, probed, probes=[part])
    assert_same(left_behind(probed, experiment), left_behind(plain, experiment))
    assert found.experiment.digest == expected.experiment.digest

    for n_steps in (1, 4, 3, 6):  # in and between tasks of six batches
        asked = iter(range(1, 100))
        with pytest.raises(Interrupted):
            run(experiment, stopped, probes=[part], stop=lambda asked=asked, n=n_steps: next(asked) == n)
    assert without_time(run(experiment, stopped, probes=[part])) == without_time(found)
    assert_same(left_behind(stopped, experiment), left_behind(plain, experiment))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is lacking
        run(experiment, stopped, probes=[part])


def without_time(result: Result) -> dict[str, Any]:
    return result.model_dump(mode="json", exclude=TIMED)


@pytest.mark.parametrize("method", names("methods"))
def test_a_method_that_is_asked_all_the_time_learns_the_same(method: str) -> None:
    asked, left_alone = (learner_of(method, "reservoir", "class") for _ in range(2))
    for x, y, task in toy_batches("class")[10:14]:
        if asked.n_observed:
            ask(asked, x)
        asked.observe(x, y, task)
        ask(asked, x)
        left_alone.observe(x, y, task)
    assert_same(asked.state_dict(), left_alone.state_dict())
    assert torch.equal(asked.scores(x), left_alone.scores(x))


def ask(learner: Learner, x: torch.Tensor) -> None:
    learner.predict(x)
    learner.features(x)
