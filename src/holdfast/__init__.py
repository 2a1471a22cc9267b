"""Online continual learning: a model that learns a stream once, in bounded memory, and does not forget."""

import sys

# `python -m holdfast` puts the current folder first, so that a torch.py there would be run by the imports below. While
# Python looks for the module, argv[0] is "-m", and the module's name stands before the arguments.
if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith("holdfast") and not sys.flags.safe_path:
    del sys.path[0]

from holdfast.learner import DriftWatch, Learner, load_learner

__all__ = ["DriftWatch", "Learner", "load_learner"]
__version__ = "0.1.0"
