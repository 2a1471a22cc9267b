"""Online continual learning: a model that learns a stream once, in bounded memory, and does not forget."""

import sys

# `python -m holdfast` puts the current folder first, so that a torch.py there would be run by the imports below. While
# Python looks for the module, argv[0] is "-m", and the module's name stands before the arguments.
if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith("holdfast") and not sys.flags.safe_path:
    del sys.path[0]

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.adapters.scikit_learn import HoldfastClassifier
    from holdfast.backbones._base import Backbone
    from holdfast.checks import check, checks_of
    from holdfast.core.batch import Batch
    from holdfast.core.model import Model, predicting
    from holdfast.core.options import Before, option
    from holdfast.core.state import Stateful
    from holdfast.drift_watch import DriftWatch
    from holdfast.experiments.experiment import Experiment
    from holdfast.experiments.probes._base import Moment, Probe
    from holdfast.experiments.recipes import load_recipe
    from holdfast.experiments.results import ResultStore
    from holdfast.experiments.run import run
    from holdfast.learner import Learner
    from holdfast.loading import load_learner
    from holdfast.memory.retrieval._base import Retrieval
    from holdfast.memory.selection._base import Selection
    from holdfast.memory.storage import Memory
    from holdfast.methods._base import Method, ReplayMethod
    from holdfast.methods.wrappers._base import ReplayWrapper, Wrapper
    from holdfast.predictor import Predictor, Snapshot
    from holdfast.streams._base import Samples, Stream, Task, seeded_generator
    from holdfast.tables import TableLearner

# The module of each public name, which is imported when the name is first used: torch and scikit-learn take seconds.
_MODULES = {
    "Backbone": "backbones._base",
    "Batch": "core.batch",
    "Before": "core.options",
    "DriftWatch": "drift_watch",
    "Experiment": "experiments.experiment",
    "HoldfastClassifier": "adapters.scikit_learn",
    "Learner": "learner",
    "Memory": "memory.storage",
    "Method": "methods._base",
    "Model": "core.model",
    "Moment": "experiments.probes._base",
    "Predictor": "predictor",
    "Probe": "experiments.probes._base",
    "ReplayMethod": "methods._base",
    "ReplayWrapper": "methods.wrappers._base",
    "ResultStore": "experiments.results",
    "Retrieval": "memory.retrieval._base",
    "Samples": "streams._base",
    "Selection": "memory.selection._base",
    "Snapshot": "predictor",
    "Stateful": "core.state",
    "Stream": "streams._base",
    "TableLearner": "tables",
    "Task": "streams._base",
    "Wrapper": "methods.wrappers._base",
    "check": "checks",
    "checks_of": "checks",
    "load_learner": "loading",
    "load_recipe": "experiments.recipes",
    "option": "core.options",
    "predicting": "core.model",
    "run": "experiments.run",
    "seeded_generator": "streams._base",
}

__all__ = [
    "Backbone",
    "Batch",
    "Before",
    "DriftWatch",
    "Experiment",
    "HoldfastClassifier",
    "Learner",
    "Memory",
    "Method",
    "Model",
    "Moment",
    "Predictor",
    "Probe",
    "ReplayMethod",
    "ReplayWrapper",
    "ResultStore",
    "Retrieval",
    "Samples",
    "Selection",
    "Snapshot",
    "Stateful",
    "Stream",
    "TableLearner",
    "Task",
    "Wrapper",
    "check",
    "checks_of",
    "load_learner",
    "load_recipe",
    "option",
    "predicting",
    "run",
    "seeded_generator",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what is public when it is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"holdfast.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
