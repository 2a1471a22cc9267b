"""Online continual learning: a model that learns a stream once, in bounded memory, and does not forget."""

from holdfast.learner import DriftWatch, Learner, load_learner

__all__ = ["DriftWatch", "Learner", "load_learner"]
__version__ = "0.1.0"
