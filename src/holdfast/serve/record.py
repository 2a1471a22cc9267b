"""Measure a served learner while it learns: accuracy before learning, drift of each class, throughput."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.core.drift import moved
from holdfast.core.labels import Labels
from holdfast.core.state import Count, Stateful
from holdfast.learner import Learner
from holdfast.tables import Accuracy

PER_CLASS = 8  # samples whose features are followed
MOST_CLASSES = 20  # that are followed: the first to come
MOST_BYTES = 4 * 2**20  # of the samples that are followed
EVERY = 100  # batches
POINTS = 100  # of the curve of drift, at most
SECONDS = 60  # over which throughput is counted


class Record(Stateful):
    """Everything that the page and the metrics say about how a learner does.

    The accuracy is of samples before they are learned. Drift is of the first samples of each class. It is the mean
    distance of their features from where they were when the class was complete, in spreads of the class.
    """

    derived: ClassVar[frozenset[str]] = frozenset({"_recent"})

    n_samples: Count
    drift: list[list[Any]]
    every: Count

    def __init__(self) -> None:
        self.n_samples = 0
        self.labels = Labels()
        self.accuracy = Accuracy()
        self.probes: dict[int, Tensor] = {}  # samples by class
        self.then: dict[int, Tensor] = {}  # their features, once a class has all its samples
        self.drift = []  # batches observed, and pairs of a class and how far it has moved
        self.every = EVERY
        self._recent: deque[tuple[float, int]] = deque()

    @property
    def samples_per_second(self) -> float:
        """Samples learned a second, over the last minute."""
        now = time.monotonic()
        recent = [(at, n) for at, n in list(self._recent) if at > now - SECONDS]
        return sum(n for _, n in recent) / max(now - recent[0][0], 1.0) if recent else 0.0

    def learned(self, learner: Learner, x: Tensor, predicted: Sequence[Any] | None, y: Sequence[Any]) -> None:
        """Take in a batch that was just learned.

        Args:
            predicted: labels from before the batch was learned; None where none could be given.
        """
        classes = self.labels.learn(y).tolist()
        places = {label: place for place, label in enumerate(self.labels.known)}
        said = [None] * len(y) if predicted is None else [places.get(label) for label in predicted]
        self.accuracy.update(said, classes)
        self.n_samples += len(classes)
        self._count(len(classes))
        self._follow(learner, x, classes)
        if learner.n_observed % self.every == 0 and self.then:
            self._measure_drift(learner)

    def _count(self, n: int) -> None:
        now = time.monotonic()
        if self._recent and now - self._recent[-1][0] < 1:
            self._recent[-1] = self._recent[-1][0], self._recent[-1][1] + n
        else:
            self._recent.append((now, n))
        while self._recent[0][0] < now - SECONDS:
            self._recent.popleft()

    def _follow(self, learner: Learner, x: Tensor, classes: Sequence[int]) -> None:
        """Keep the first samples of each class, and their features when a class has enough of them."""
        for place, c in enumerate(classes):
            kept = self.probes.get(c)
            if c in self.then or (kept is None and not self._has_room(x[place])):
                continue
            sample = x[place : place + 1].clone()
            self.probes[c] = sample if kept is None else torch.cat([kept, sample])
            if len(self.probes[c]) == PER_CLASS:
                self.then[c] = learner.features(self.probes[c]).cpu()

    def _has_room(self, sample: Tensor) -> bool:
        return len(self.probes) < MOST_CLASSES and (len(self.probes) + 1) * PER_CLASS * sample.nbytes <= MOST_BYTES

    def _measure_drift(self, learner: Learner) -> None:
        pairs = [[c, moved(learner.features(self.probes[c]).cpu(), then)] for c, then in self.then.items()]
        self.drift.append([learner.n_observed, pairs])
        if len(self.drift) > POINTS:
            self.drift, self.every = self.drift[1::2], 2 * self.every
