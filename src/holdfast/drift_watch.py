"""Drift of each class on samples of one's own, measured while a learner learns."""

from __future__ import annotations

from holdfast.core.drift import moved
from holdfast.core.inputs import Array, whole_numbers
from holdfast.learner import Learner


class DriftWatch:
    """Follow how far each class moves from now on, on samples of your own.

    Begin with `learner.watch(DriftWatch(learner, x, y))`.

    Attributes:
        history: by the number of batches observed, the drift of each class since the watch began. It is the mean
            distance of the class's samples from where they were, in units of the class's spread then.

    Example:
        >>> import torch
        >>> x, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> learner = Learner("er", backbone={"name": "mlp", "hidden": [8]}, input_shape=(4,))
        >>> watch = DriftWatch(learner, x, y, every=1)
        >>> learner.watch(watch)
        >>> loss = learner.observe(x, y)
        >>> sorted(watch.history), sorted(watch.history[1])
        ([1], [0, 1])
    """

    def __init__(self, learner: Learner, x: Array, y: Array, *, every: int = 100) -> None:
        self.x = x
        self.y = whole_numbers(y, "y", len(x))
        self.every = every
        self.then = learner.features(x).cpu()
        self.history: dict[int, dict[int, float]] = {}

    def __call__(self, learner: Learner) -> None:
        if learner.n_observed % self.every == 0:
            self.history[learner.n_observed] = self.moved(learner)

    def moved(self, learner: Learner) -> dict[int, float]:
        """Return how far each class has moved by now."""
        now = learner.features(self.x).cpu()
        return {c: moved(now[self.y == c], self.then[self.y == c]) for c in sorted(set(self.y.tolist()))}
