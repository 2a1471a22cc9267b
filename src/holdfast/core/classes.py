"""Seen classes, and the classes that compete for a sample. The settings are implemented only here."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.core.batch import NO_TASK
from holdfast.core.state import State, Stateful

Array = NDArray[Any]

Setting = Literal["task", "class", "domain", "free"]
MAX_TASKS = 100_000  # a task beyond is more likely a mistake than a task
SETTINGS: tuple[Setting, ...] = get_args(Setting)
SETTING_MEANINGS: dict[Setting, str] = {
    "task": "task known when learning and predicting; only classes of one task compete",
    "class": "task known when learning only; all seen classes compete",
    "domain": "task known when learning only; tasks share their classes, all seen classes compete",
    "free": "task never known; all seen classes compete",
}

_SHIFT = 32  # bits of a class in a pair
_SPAN = 1 << _SHIFT
_MOST_RECENT = 64
_TABLE_BYTES = 8192  # a table of tasks and classes of this size is kept, and looked up a little faster than a list


def learns_by_task(setting: Setting) -> bool:
    """True if the task is known when learning."""
    return setting != "free"


def predicts_by_task(setting: Setting) -> bool:
    """True if the task is known when predicting."""
    return setting == "task"


def tasks_own_classes(setting: Setting) -> bool:
    """True if each class belongs to one known task."""
    return setting in ("task", "class")


class SeenClasses(Stateful):
    """The classes seen so far, under one of the four settings; a row of classes for each task whose number is known.

    A row is the list of its classes. Its size depends on the seen classes, not on the numbers of classes and tasks.
    Tensors are replaced and never written to: who holds one sees no change.

    Example:
        >>> seen = SeenClasses("task", n_classes=4)
        >>> seen.add(torch.tensor([0, 3]), torch.tensor([0, 7]))
        >>> seen.competing(torch.tensor([7])).tolist()
        [[False, False, False, True]]
    """

    derived: ClassVar[frozenset[str]] = frozenset({"complete", "n_tasks_learned", "_all", "_own", "_table", "_recent"})

    replaced: ClassVar[frozenset[str]] = frozenset({"pairs", "learned", "_all", "_own", "_table"})

    _recent: frozenset[int]  # some of the pairs learned

    def __init__(self, setting: Setting, n_classes: int) -> None:
        self.setting: Setting = setting
        self.n_classes = n_classes  # there is room for
        self.pairs = torch.zeros(
            0, dtype=torch.int64
        )  # (k,) each task and class seen, as one number, the task in its upper half; sorted
        self.learned = torch.zeros(0, dtype=torch.bool)  # (k,) false where the class was announced and no sample came
        self._look_again()

    def __deepcopy__(self, memo: dict[int, Any]) -> SeenClasses:
        return copy.copy(self)

    @property
    def learns_by_task(self) -> bool:
        """True if the task is known when learning."""
        return learns_by_task(self.setting)

    @property
    def predicts_by_task(self) -> bool:
        """True if the task is known when predicting."""
        return predicts_by_task(self.setting)

    @property
    def n_tasks(self) -> int:
        """Highest number of a seen task, plus one."""
        return 1 + max(0, int(self.pairs[-1]) >> _SHIFT) if len(self.pairs) else 1

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, those included that make looking up fast."""
        pairs = 9 * len(self.pairs) + (0 if len(self._own) == len(self.pairs) else 8 * len(self._own))
        return pairs + self.n_classes + (0 if self._table is None else self._table.nbytes)

    def grow(self, n_classes: int) -> None:
        """Make room for `n_classes` classes."""
        self.n_classes = n_classes
        self._look_again()

    def tasks(self) -> Array:
        """Return (k,), the numbers of the tasks seen, in order."""
        return np.unique(self.pairs.numpy() >> _SHIFT)

    def were_seen(self, y: Tensor, task: Tensor) -> bool:
        """Return (n,) True for each class `y` (n,) that was learned in its `task` (n,)."""
        pairs = (task.cpu() << _SHIFT) + y.cpu()
        return bool(torch.isin(pairs, self.pairs[self.learned]).all())

    def announce(self, classes: Sequence[int], task: int) -> None:
        """Say which classes a task has before its samples come."""
        y = torch.tensor(list(classes), dtype=torch.int64)
        self._note((task << _SHIFT) + y.numpy(), learned=False)

    def add(self, y: Tensor, task: Tensor) -> None:
        """Note the classes `y` (n,) of samples of the tasks `task` (n,)."""
        pairs = frozenset((of << _SHIFT) + label for of, label in zip(task.tolist(), y.tolist(), strict=True))
        if pairs <= self._recent:  # as a rule: several times faster than to look among all
            return
        self._note(np.array(sorted(pairs)), learned=True)
        recent = self._recent | pairs
        self._recent = recent if len(recent) <= _MOST_RECENT else frozenset()

    def join(self, other: SeenClasses) -> None:
        """Note what another has seen, under the same setting; there has to be room for its classes."""
        self._note(other.pairs.numpy(), learned=False)
        self._note(other.pairs[other.learned].numpy(), learned=True)

    def remove(self, classes: Sequence[int]) -> None:
        """Forget that these classes were seen, in all tasks."""
        kept = ~torch.isin(self.pairs & (_SPAN - 1), torch.tensor(list(classes), dtype=torch.int64))
        self.pairs, self.learned = self.pairs[kept], self.learned[kept]
        self._look_again()

    def knows_task(self, task: int) -> bool:
        """Return True if a class of `task` was seen. Settings that ignore the task return True for all."""
        begin, end = np.searchsorted(self.pairs.numpy(), [task << _SHIFT, (task + 1) << _SHIFT])
        return not self.predicts_by_task or bool(begin < end)

    def competing(self, task: Tensor) -> Tensor:
        """Return (n, n_classes), true where a class competes for a sample of the tasks `task` (n,)."""
        return self.of_task(task) if self.predicts_by_task else self._everywhere(task)

    def of_task(self, task: Tensor) -> Tensor:
        """Return (n, n_classes), true where a class is of the sample's task, or is seen where tasks own no classes.

        In the setting `class` an announced class is of a task once a sample of it was learned.
        """
        if not tasks_own_classes(self.setting):
            return self._everywhere(task)
        if self._table is not None:
            return self._table.to(task.device)[task]
        tasks = task.cpu().numpy()
        return self._mask(tasks << _SHIFT, (tasks + 1) << _SHIFT).to(task.device)

    def up_to_task(self, task: Tensor) -> Tensor:
        """Return (n, n_classes), true for classes of the sample's task and of tasks with lower numbers."""
        if not tasks_own_classes(self.setting):
            return self._everywhere(task)
        tasks = task.cpu().numpy()
        return self._mask(np.zeros_like(tasks), (tasks + 1) << _SHIFT).to(task.device)

    def all_seen(self) -> Tensor:
        """Return (n_classes,), true for every class seen."""
        return self._all

    def all_learned(self) -> Tensor:
        """Return (n_classes,), true for every class of which a sample was learned."""
        return _row(self.pairs[self.learned], self.n_classes)

    def groups(self) -> Tensor:
        """Return (groups, n_classes) classes that compete among each other, of which a sample was learned, of any task.

        A group is a task in the setting `task`; in the others all are one.
        """
        if not self.predicts_by_task:
            groups = self._all[None] & self.all_learned()
        else:
            groups = self.of_task(torch.from_numpy(self.tasks())) & self.all_learned()
        return groups[groups.any(dim=1)]

    def classes(self) -> Tensor:
        """Return all classes seen, in order."""
        return self._all.nonzero().flatten()

    def load_state_dict(self, state: State) -> None:
        if "table" in state:
            raise ValueError("the classes seen were saved by an earlier version: load them with the version that saved")
        n_classes, pairs, learned = (state.get(name) for name in ("n_classes", "pairs", "learned"))
        if not isinstance(pairs, Tensor) or pairs.dtype != torch.int64 or pairs.ndim != 1:
            raise ValueError("the classes seen that were saved are not whole: pairs is no row of whole numbers")
        if not isinstance(learned, Tensor) or learned.dtype != torch.bool or learned.shape != pairs.shape:
            raise ValueError("the classes seen that were saved are not whole: learned does not fit pairs")
        classes = pairs & (_SPAN - 1)
        if not isinstance(n_classes, int) or n_classes < 0 or bool((classes >= n_classes).any()):
            raise ValueError(f"the classes seen that were saved are not all below {n_classes}")
        if bool((pairs.diff() <= 0).any()):
            raise ValueError("the classes seen that were saved are not in order")
        tasks = pairs >> _SHIFT
        lowest = 0 if self.learns_by_task else NO_TASK
        if len(tasks) and not lowest <= int(tasks.min()) <= int(tasks.max()) < MAX_TASKS:
            raise ValueError(f"the classes seen that were saved are not of tasks of the setting '{self.setting}'")
        if state["setting"] != self.setting:
            raise ValueError(f"the classes were seen in the setting {state['setting']!r}, not in '{self.setting}'")
        super().load_state_dict(state)
        self._look_again()

    def _note(self, noted: Array, *, learned: bool) -> None:
        known = self.pairs.numpy()
        place = known.searchsorted(noted)
        found = known.take(place, mode="clip") == noted if len(known) else np.zeros(len(noted), bool)
        if found.all() and (not learned or self.learned.numpy().take(place).all()):
            return
        pairs = np.union1d(known, noted)
        flags = np.zeros(len(pairs), bool)
        flags[pairs.searchsorted(known)] = self.learned.numpy()
        if learned:
            flags[pairs.searchsorted(noted)] = True
        self.pairs, self.learned = torch.from_numpy(pairs), torch.from_numpy(flags)
        self._look_again()

    def _look_again(self) -> None:
        """Make anew what is derived from the pairs."""
        self._recent = frozenset()
        self._all = _row(self.pairs, self.n_classes)
        self.complete = not self.predicts_by_task and bool(self._all.all())
        learned = self.pairs if bool(self.learned.all()) else self.pairs[self.learned]
        self.n_tasks_learned = len(np.unique(learned.numpy() >> _SHIFT))
        self._own = self.pairs if self.predicts_by_task else learned
        self._table = None
        n_tasks = self.n_tasks
        if tasks_own_classes(self.setting) and n_tasks * self.n_classes <= _TABLE_BYTES:
            tasks = np.arange(n_tasks)
            self._table = self._mask(tasks << _SHIFT, (tasks + 1) << _SHIFT)

    def _everywhere(self, task: Tensor) -> Tensor:
        return self._all.to(task.device).expand(len(task), -1)

    def _mask(self, begin: Array, end: Array) -> Tensor:
        """Return (n, n_classes), true, in row i, for the classes of the pairs from begin[i] to before end[i]."""
        own = self._own.numpy()
        first, last = own.searchsorted(begin), own.searchsorted(end)
        lengths = last - first
        rows = np.repeat(np.arange(len(lengths)), lengths)
        places = np.arange(len(rows)) + np.repeat(last - lengths.cumsum(), lengths)
        mask = np.zeros((len(lengths), self.n_classes), bool)
        mask[rows, own[places] & (_SPAN - 1)] = True
        return torch.from_numpy(mask)


def _row(pairs: Tensor, n_classes: int) -> Tensor:
    """Return (n_classes,), true for the classes of the pairs, whatever their tasks."""
    row = torch.zeros(n_classes, dtype=torch.bool)
    row[pairs & (_SPAN - 1)] = True
    return row
