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
    from holdfast.drift_watch import DriftWatch
    from holdfast.learner import Learner
    from holdfast.loading import load_learner
    from holdfast.predictor import Predictor, Snapshot

# The module of each public name, which is imported when the name is first used: torch and scikit-learn take seconds.
_MODULES = {
    "DriftWatch": "drift_watch",
    "HoldfastClassifier": "adapters.scikit_learn",
    "Learner": "learner",
    "Predictor": "predictor",
    "Snapshot": "predictor",
    "load_learner": "loading",
}

__all__ = ["DriftWatch", "HoldfastClassifier", "Learner", "Predictor", "Snapshot", "load_learner"]
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
