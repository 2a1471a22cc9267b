"""A stream that anything should learn: well-separated clouds of points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.core.classes import Setting
from holdfast.learner import Learner
from holdfast.streams._base import Samples, Stream, Task, seeded_generator

N_FEATURES = 8


class Toy(Stream):
    """Three tasks; of two new classes each, or (`shared`) of the same two classes elsewhere in space.

    `future` other than 0 changes what the last task looks like, and nothing before it.
    """

    n_held_out = 0

    def __init__(
        self,
        data: Path | None = None,
        *,
        seed: int = 0,
        tasks: str = "report",
        shared: bool = False,
        future: int = 0,
        n_train: int = 120,
    ) -> None:
        del data, tasks
        self.n_classes = 2 if shared else 6
        self.input_shape = (N_FEATURES,)
        super().__init__([self._task(t, seed, shared, future if t == 2 else 0, n_train) for t in range(3)])

    def _task(self, t: int, seed: int, shared: bool, future: int, n_train: int) -> Task:
        classes = (0, 1) if shared else (2 * t, 2 * t + 1)
        generator = seeded_generator("toy", seed, t, future)
        centres = torch.zeros(2, N_FEATURES)
        centres[0, 2 * t], centres[1, 2 * t + 1] = 6.0, 6.0
        train, test = (self._samples(n, t, classes, centres, generator) for n in (n_train, 60))
        return Task(t, classes, train, test)

    @staticmethod
    def _samples(n: int, t: int, classes: tuple[int, ...], centres: Tensor, generator: torch.Generator) -> Samples:
        which = torch.randint(2, (n,), generator=generator)
        x = centres[which] + torch.randn(n, N_FEATURES, generator=generator)
        return Samples(lambda rows: x[rows], torch.arange(n), torch.tensor(classes)[which], torch.full((n,), t))


def toy_batches(setting: Setting, size: int = 10) -> list[tuple[Tensor, Tensor, int | None]]:
    """Return the batches of the toy stream in order, with the task where the setting knows it."""
    stream = Toy(shared=setting == "domain")
    batches = []
    for task in stream:
        for step in range(task.n_steps(size)):
            batch = task.batch(step, size=size, seed=0)
            batches.append((batch.x, batch.y, None if setting == "free" else task.id))
    return batches


def toy_learner(settings: dict[str, Any]) -> Learner:
    """Return a learner for the toy stream, whose inputs stay as they come, as those of experiments do."""
    return Learner(**{"standardise": False, **settings})
