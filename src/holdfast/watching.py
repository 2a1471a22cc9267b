"""Calls from a learner to its user while it learns: after batches, at drift, when accuracy has fallen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from holdfast.core.inputs import Array, checked_inputs, checked_tasks
from holdfast.core.journaled import journaled
from holdfast.guard import Guard, Rollback
from holdfast.learning import Labelled, Learning
from holdfast.practice import Drift, Practice


class Watching(Learning):
    """Base class with the callbacks of a learner and with its guard."""

    def on_drift(self, callback: Callable[[Drift], None]) -> None:
        """Call `callback` at each boundary that is found; callbacks are not saved.

        Example:
            >>> from holdfast import Learner
            >>> found = []
            >>> Learner("er", boundaries="adwin").on_drift(found.append)
        """
        practice = self._around("on_drift")
        if practice.boundaries is None:
            raise ValueError("no boundaries are looked for: build the learner with boundaries='adwin'")
        practice.callbacks.append(callback)

    @journaled
    def guard(
        self, x: Array, y: Labelled, task: int | Array | None = None, *, drop: float = 0.05, every: int = 20
    ) -> None:
        """Go back to the last good weights when accuracy on held-out samples has fallen.

        Args:
            x: (n, …) inputs that are never learned; some hundreds find a fall of some points. They are kept.
            y: (n,) labels, some of which may come later.
            task: where a prediction needs it.
            drop: the fall below the best accuracy that is allowed; more is a fall if it is beyond chance, see `Guard`.
            every: batches between two measurements.

        A fall gives a `GuardWarning`, and calls what `on_rollback` named. Memory stays as it is. `unguard` ends it.

        Example:
            >>> import torch
            >>> from holdfast import Learner
            >>> learner = Learner("slda")
            >>> x, y = torch.tensor([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.2]]), torch.tensor([0, 0, 1, 1])
            >>> loss = learner.observe(x, y)
            >>> learner.guard(x, y, every=1)
            >>> learner.practice.guard.best
            1.0
        """
        practice = self._around("guard")
        if self.input_dtype is None:
            raise RuntimeError("nothing was learned yet: call observe(x, y) first, and then guard")
        self.change(lambda: self._guard(practice, x, y, task, drop, every))

    def _guard(
        self, practice: Practice, x: Array, y: Labelled, task: int | Array | None, drop: float, every: int
    ) -> None:
        inputs = checked_inputs(x, shape=self.input_shape, dtype=self.input_dtype)
        classes, _, numbered = self._classes_of(y, len(inputs))
        tasks = checked_tasks(task, len(inputs), self.settings.setting, learning=False)
        practice.guard = Guard(inputs, classes, tasks, drop=drop, every=every)
        practice.look_after(self.method, self.n_observed)
        if numbered is not None:
            self.answers.labels.take(numbered)

    @journaled
    def unguard(self) -> None:
        """Measure no more, and let go of held-out samples and good weights."""
        practice = self._around("guard")

        def let_go() -> None:
            practice.guard = None

        self.change(let_go)

    def on_rollback(self, callback: Callable[[Rollback], None]) -> None:
        """Call `callback` each time a guard goes back; callbacks are not saved."""
        self._around("on_rollback").rollback_callbacks.append(callback)

    def watch(self, watcher: Callable[[Self], None]) -> None:
        """Call `watcher` after each batch; watchers are not saved."""
        self._watchers.append(watcher)
