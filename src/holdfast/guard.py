"""A guard: weights go back when accuracy on held-out samples has fallen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.classes import predicts_by_task
from holdfast.core.state import Count, State, Stateful, check_tensor, is_finite
from holdfast.methods._base import Method

MARGIN = 2.33  # standard errors of the fall: one measurement in a hundred exceeds them by chance


class GuardWarning(UserWarning):
    """Accuracy on held-out samples fell and weights went back; the message says from where and to where."""


@dataclass(frozen=True)
class Rollback:
    """Weights that went back.

    Attributes:
        n_observed: batches observed when they did. kept_at: batches observed when they were kept.
        best: the best accuracy on the held-out samples. fallen: what it had fallen to. after: with the weights of now.
    """

    n_observed: int
    kept_at: int
    best: float
    fallen: float
    after: float


class Guard(Stateful):
    """Held-out samples, which of them were right at best, and the last weights with which few of these were lost.

    Two measurements are of the same samples, so what counts are the samples whose answers differ: those lost since the
    best measurement, and those won. The fall is their difference in shares. It has to exceed `drop` by `MARGIN`
    standard errors. Both are estimated with one sample more of each kind, so few samples raise no false alarm. See
    Bonett and Price, Journal of Educational and Behavioral Statistics 2012.

    Args:
        x: (n, …) inputs. y: (n,) classes. task: (n,), as a prediction wants it.
        drop: the fall in accuracy that is allowed.
        every: batches between two measurements.

    Example:
        >>> guard = Guard(torch.zeros(100, 2), torch.zeros(100, dtype=torch.int64), torch.full((100,), -1))
        >>> right = torch.arange(100) < 90
        >>> guard.right = right
        >>> [guard.fell(right & (torch.arange(100) >= n_lost)) for n_lost in (5, 10, 30)]
        [False, False, True]
    """

    replaced: ClassVar[frozenset[str]] = frozenset({"x", "y", "task", "right", "good"})

    drop: Annotated[float, Field(ge=0, lt=1)]
    every: Annotated[int, Field(ge=1)]
    kept_at: Count
    n_rolled_back: Count

    def __init__(self, x: Tensor, y: Tensor, task: Tensor, *, drop: float = 0.05, every: int = 20) -> None:
        if not 0 <= drop < 1:
            raise ValueError(f"drop is {drop}: give the fall in accuracy that is allowed, from 0 and below 1")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every is {every}: give a number of batches, 1 or more")
        self.x, self.y, self.task = x.clone(), y.clone(), task.clone()
        self.drop, self.every = float(drop), every
        self.right = torch.zeros(len(y), dtype=torch.bool)  # at the best measurement
        self.good: State = {}
        self.kept_at = 0  # batches observed then
        self.n_rolled_back = 0

    @property
    def best(self) -> float:
        """The best accuracy."""
        return _share(self.right)

    @property
    def nbytes(self) -> int:
        """Bytes of the samples and of the weights."""
        return sum(each.nbytes for each in (self.x, self.y, self.task, self.right)) + _nbytes(self.good)

    def measured(self, method: Method) -> Tensor:
        """(n,) Return which samples are right; one of a task that was not seen is not."""
        seen = method.model.seen
        right = torch.zeros(len(self.y), dtype=torch.bool)
        rows = torch.arange(len(self.y))
        if predicts_by_task(seen.setting):
            known = {task for task in set(self.task.tolist()) if seen.knows_task(task)}
            rows = torch.tensor([i for i, task in enumerate(self.task.tolist()) if task in known], dtype=torch.int64)
        if not bool(seen.all_seen().any()):
            return right
        with method.settled():
            for part in torch.split(rows, method.model.part_size(self.x)) if len(rows) else ():
                x, task = (each[part].to(method.model.device) for each in (self.x, self.task))
                right[part] = method.scores(x, task).argmax(dim=1).cpu() == self.y[part]
        return right

    def fell(self, right: Tensor) -> bool:
        """Tell if accuracy fell beyond what is allowed, and by more than chance; `right` (n,) is a measurement."""
        n = len(right) + 2
        lost, won = (int(each.sum()) + 1 for each in (self.right & ~right, right & ~self.right))
        fall = (lost - won) / n
        return fall - MARGIN * math.sqrt(((lost + won) / n - fall**2) / n) > self.drop

    def is_good(self, right: Tensor) -> bool:
        """Tell if accuracy is as near to the best as is allowed."""
        return self.best - _share(right) <= self.drop

    def keep(self, weights: State, right: Tensor, n_observed: int) -> None:
        """Keep weights, of which nothing is written over any more, and what they make right if that is the most."""
        self.good, self.kept_at = weights, n_observed
        if _share(right) >= self.best:
            self.right = right

    @classmethod
    def of(cls, state: State) -> Guard:
        """Return the guard that a state was saved of; ValueError if it is none."""
        like = {
            "x": torch.zeros(1, 1),
            "y": torch.zeros(1, dtype=torch.int64),
            "task": torch.zeros(1, dtype=torch.int64),
            "right": torch.zeros(1, dtype=torch.bool),
        }
        parts = [state.get(name) if isinstance(state, dict) else None for name in like]
        if not all(isinstance(part, Tensor) and part.ndim for part in parts) or len({len(part) for part in parts}) > 1:  # type: ignore[arg-type]
            raise ValueError("the saved guard does not have its held-out samples")
        for name in ("y", "task", "right"):
            check_tensor(state[name], like=like[name][:0], name=f"{name} of the saved guard")
        if not is_finite(state["x"]) or not isinstance(state.get("good"), dict):
            raise ValueError("the saved guard has samples that are not finite, or no weights")
        made = cls(state["x"], state["y"], state["task"])
        good = state["good"]
        made.load_state_dict({**state, "good": {}})
        made.good = good
        return made


def _share(right: Tensor) -> float:
    return right.double().mean().item()


def _nbytes(tree: object) -> int:
    if isinstance(tree, Tensor):
        return tree.nbytes
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return sum(map(_nbytes, values))
