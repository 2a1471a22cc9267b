"""Which classes were seen, and which of them compete for a sample: the settings live here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from holdfast.core.state import Stateful

Setting = Literal["task", "class", "domain", "free"]
SETTINGS: tuple[Setting, ...] = get_args(Setting)
SETTING_MEANINGS: dict[Setting, str] = {
    "task": "task known when learning and predicting; only classes of one task compete",
    "class": "task known when learning only; all seen classes compete",
    "domain": "task known when learning only; tasks share their classes, all seen classes compete",
    "free": "task never known; all seen classes compete",
}


def learns_by_task(setting: Setting) -> bool:
    """Whether the task is known when learning."""
    return setting != "free"


def predicts_by_task(setting: Setting) -> bool:
    """Whether the task is known when predicting."""
    return setting == "task"


def tasks_own_classes(setting: Setting) -> bool:
    """Whether a class belongs to one task, which is known."""
    return setting in ("task", "class")


class SeenClasses(Stateful):
    """The classes seen so far, under one of the four settings."""

    def __init__(self, setting: Setting, n_classes: int, device: torch.device | None = None) -> None:
        self.setting: Setting = setting
        # (rows, n_classes): a row a task in the setting `task`, one row for all tasks in the others.
        self.table = torch.zeros(1, n_classes, dtype=torch.bool, device=device)
        self.complete = False  # whether every class competes for every sample, so that no mask is needed

    @property
    def learns_by_task(self) -> bool:
        """Whether the task is known when learning."""
        return learns_by_task(self.setting)

    @property
    def predicts_by_task(self) -> bool:
        """Whether the task is known when predicting."""
        return predicts_by_task(self.setting)

    @property
    def n_classes(self) -> int:
        """Classes there is room for."""
        return self.table.shape[1]

    def grow(self, n_classes: int) -> None:
        """Make room for `n_classes` classes."""
        self.table = _enlarged(self.table, len(self.table), n_classes)
        self.complete = False

    def announce(self, classes: Sequence[int], task: int) -> None:
        """Say which classes a task has before its samples come."""
        y = torch.tensor(list(classes), dtype=torch.int64, device=self.table.device)
        self.add(y, torch.full_like(y, task))

    def add(self, y: Tensor, task: Tensor) -> None:
        """Note the classes `y` (n,) of samples of the tasks `task` (n,)."""
        if self.complete:
            return
        if not self.predicts_by_task:
            self.table[0, y] = True
            self.complete = bool(self.table.all())
            return
        n_rows = int(task.max()) + 1
        if n_rows > len(self.table):
            self.table = _enlarged(self.table, n_rows, self.n_classes)
        self.table[task, y] = True

    def join(self, other: SeenClasses) -> None:
        """Note what another has seen, under the same setting; there has to be room for its classes."""
        n_rows = max(len(self.table), len(other.table))
        self.table = _enlarged(self.table, n_rows, self.n_classes)
        self.table |= _enlarged(other.table.to(self.table.device), n_rows, self.n_classes)
        self.complete = not self.predicts_by_task and bool(self.table.all())

    def remove(self, classes: Sequence[int]) -> None:
        """Forget that these classes were seen, in all tasks."""
        if len(classes):
            self.table[:, list(classes)] = False
            self.complete = False

    def knows_task(self, task: int) -> bool:
        """Whether a class of `task` was seen; the other settings ask for no task and know all."""
        return not self.predicts_by_task or (0 <= task < len(self.table) and bool(self.table[task].any()))

    def competing(self, task: Tensor) -> Tensor:
        """(n, n_classes) true where a class competes for a sample of the tasks `task` (n,)."""
        if self.predicts_by_task:
            return self.table[task]
        return self.table.expand(len(task), -1)

    def up_to(self, task: Tensor) -> Tensor:
        """(n, n_classes) the same, with the classes of tasks of lower numbers beside those of the sample's own."""
        if self.predicts_by_task:
            return self.table.cumsum(dim=0).bool()[task]
        return self.competing(task)

    def classes(self) -> Tensor:
        """All classes seen, in order."""
        return self.table.any(dim=0).nonzero().flatten()


def _enlarged(table: Tensor, n_rows: int, n_columns: int) -> Tensor:
    larger = table.new_zeros(n_rows, n_columns)
    larger[: table.shape[0], : table.shape[1]] = table
    return larger
