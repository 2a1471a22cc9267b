"""Runs of the toy stream that take a moment, how one is stopped, and all that it leaves."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.checkpoint import read_checkpoint
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import CHECKPOINT
from tests.support.toy import Toy


def toy_experiment(**changes: object) -> Experiment:
    settings = {
        "stream": {"name": f"{Toy.__module__}:Toy"},
        "method": "er",
        "setting": "class",
        "backbone": {"name": "mlp", "hidden": [16]},
        "memory": 30,
        "selection": "ring",
        "momentum": 0.5,
    }
    return Experiment.model_validate(settings | changes)


def left_behind(store: ResultStore, experiment: Experiment) -> dict[str, object]:
    """All that a run leaves but the time it took."""
    state = read_checkpoint(store.folder(experiment) / CHECKPOINT)
    del state["probes"]["timing"]
    return state


def after(n_steps: int) -> Callable[[], bool]:
    """The `stop` of a run that ends it after so many steps."""
    asked = iter(range(10**6))
    return lambda: next(asked) >= n_steps - 1
