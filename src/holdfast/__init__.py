"""Online continual learning: a model that learns a stream once, in bounded memory, and does not forget."""

import sys

# `python -m holdfast` puts the current folder first, so that a torch.py there would be run by the imports below. While
# Python looks for the module, argv[0] is "-m", and the module's name stands before the arguments.
if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith("holdfast") and not sys.flags.safe_path:
    del sys.path[0]

from typing import TYPE_CHECKING, Any

from holdfast.learner import DriftWatch, Learner, load_learner

if TYPE_CHECKING:
    from holdfast.adapters.scikit_learn import HoldfastClassifier

__all__ = ["DriftWatch", "HoldfastClassifier", "Learner", "load_learner"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the estimator of scikit-learn, and scikit-learn with it, when it is first asked for."""
    if name != "HoldfastClassifier":
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from holdfast.adapters.scikit_learn import HoldfastClassifier

    return HoldfastClassifier
