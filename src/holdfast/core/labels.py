"""Labels of any kind, and the numbers of the classes that stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from holdfast.core.state import Plain, State, Stateful
from holdfast.core.undo import Undo

MAX_CLASSES = 100_000  # a whole number from here on is a label, and not the number of a class
WHOLE = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
Label = bool | int | float | str | tuple[Any, ...] | None


class Labels(Stateful):
    """The labels that came, in the order in which they came; the place of a label is the number of its class.

    Example:
        >>> labels = Labels()
        >>> labels.learn(["cat", "dog", "cat"]).tolist()
        [0, 1, 0]
        >>> labels.of([1, 0])
        ['dog', 'cat']
    """

    derived: ClassVar[frozenset[str]] = frozenset({"_places"})

    def __init__(self) -> None:
        self.known: list[Label] = []
        self._places: dict[Label, int] = {}

    def __len__(self) -> int:
        return len(self.known)

    def learn(self, labels: Iterable[Any]) -> Tensor:
        """Return (n,), the classes of labels; new labels get the next numbers. ValueError changes nothing."""
        plain = [plain_label(label) for label in labels]
        for label in plain:
            if label not in self._places:
                self._places[label] = len(self.known)
                self.known.append(label)
        return torch.tensor([self._places[label] for label in plain], dtype=torch.int64)

    def of(self, classes: Iterable[int]) -> list[Label]:
        """Return the labels of numbers of classes."""
        return [self.known[c] for c in classes]

    def load_state_dict(self, state: State) -> None:
        """Restore; raise ValueError unless the saved labels are plain and all different."""
        known = state.get("known") if isinstance(state, dict) else None
        if not isinstance(known, list):
            raise ValueError("the saved labels are no list")
        plain = [plain_label(label) for label in known]
        places = {label: place for place, label in enumerate(plain)}
        if len(places) != len(plain):
            raise ValueError("a label is saved twice")
        self.known, self._places = plain, places


class ClassLabels(Labels):
    """Labels of a learner: whole numbers from 0 are classes themselves, until a label comes that is none.

    From then on classes are numbered as their labels come. The numbers of before stay the labels of their classes.

    Example:
        >>> labels = ClassLabels()
        >>> labels.named, labels.preview(["cat", "dog", "cat"], n_classes=0).y.tolist()
        (False, [0, 1, 0])
    """

    derived: ClassVar[frozenset[str]] = Labels.derived | {"_are_numbers", "_n_looked"}

    def __init__(self) -> None:
        super().__init__()
        self.named = False  # a label came that is no number of a class
        self._are_numbers, self._n_looked = True, 0

    @property
    def are_numbers(self) -> bool:
        """True if every label is a whole number, so that a tensor can hold them."""
        if self._n_looked < len(self.known):  # each label is looked at once
            new = self.known[self._n_looked :]
            self._are_numbers = self._are_numbers and all(type(label) is int and abs(label) < 2**63 for label in new)
            self._n_looked = len(self.known)
        return self._are_numbers

    def of_classes(self, classes: Iterable[int]) -> list[Label]:
        """Return the labels of numbers of classes, which are these numbers unless classes have names."""
        return self.of(classes) if self.named else list(classes)

    def are_classes(self, y: Any, *, room: int | None) -> bool:
        """Return True if `y` is to be taken as numbers of classes, or refused as such.

        Args:
            room: of the model, None if it grows. Where it is stated, a number beyond is a mistake and no label.
        """
        if self.named:
            return False
        numbers = _whole_numbers(y)
        if numbers is None:
            return not isinstance(y, str | bytes) and _is_numeric(y)
        return room is not None or not numbers or (min(numbers) >= 0 and max(numbers) < MAX_CLASSES)

    def preview(self, y: Any, *, n_classes: int, room: int | None = None) -> Numbered:
        """Return the classes of labels, and the labels known with them; nothing is kept until `take`.

        Args:
            n_classes: there were before a label came that is no class; their numbers are labels.
            room: of the model, None if it grows.
        """
        if isinstance(y, str | bytes):
            raise ValueError(f"y is the text {y!r}: give one label a sample, as in [{y!r}]")
        given = y.tolist() if isinstance(y, np.ndarray | Tensor) else y
        if not isinstance(given, Iterable) or isinstance(given, Set | Mapping):
            raise ValueError(f"y is the {type(y).__name__} {y!r:.60}: give one label a sample, in their order")
        plain = [plain_label(label) for label in given]
        begun: list[Label] = [] if self.named else list(range(n_classes))
        places = self._places if self.named else {label: place for place, label in enumerate(begun)}
        new: dict[Label, int] = {}
        for label in plain:
            if label not in places:
                new.setdefault(label, len(places) + len(new))
        if new and room is not None and len(places) + len(new) > room:
            raise ValueError(
                f"label {next(reversed(new))!r} is one more than the {room} classes that the model has room for: build "
                f"it with n_classes={len(places) + len(new)} or more, or without n_classes to let it grow"
            )
        y = torch.tensor([new[label] if label in new else places[label] for label in plain], dtype=torch.int64)
        return Numbered(y, [*begun, *new], len(places) + len(new))

    def take(self, numbered: Numbered) -> None:
        """Keep the labels of a preview."""
        self.named = True
        for label in numbered.new:
            self._places[label] = len(self.known)
            self.known.append(label)

    def keep_for_undo(self, undo: Undo) -> None:
        """Write down how many labels there are: to bring them back, those after are taken out."""
        undo.afterwards(partial(self._shorten, self.named, len(self.known)))

    def _shorten(self, named: bool, n: int) -> None:
        for label in self.known[n:]:
            self._places.pop(label, None)
        del self.known[n:]
        self.named, self._are_numbers, self._n_looked = named, True, 0

    def load_state_dict(self, state: State) -> None:
        """Restore; raise ValueError unless the saved labels are plain and all different."""
        named = state.get("named") if isinstance(state, dict) else None
        if type(named) is not bool:
            raise ValueError("the saved labels do not say if they have names")
        super().load_state_dict(state)
        self.named = named
        self._are_numbers, self._n_looked = True, 0


@dataclass(frozen=True)
class Numbered:
    """Labels of a batch as classes.

    Attributes:
        y: (n,) classes.
        new: labels that were not known before, in the order of their classes.
        n_classes: that there are with them.
    """

    y: Tensor
    new: list[Label]
    n_classes: int


def _is_numeric(y: Any) -> bool:
    """Return True for what holds numbers only, of whatever kind."""
    if isinstance(y, Tensor):
        return True
    if isinstance(y, np.ndarray):
        return y.dtype.kind in "biufc"
    return not isinstance(y, list | tuple) or all(
        isinstance(label, int | float | complex | np.number | Tensor | list) and not isinstance(label, bool)
        for label in y
    )


def _whole_numbers(y: Any) -> list[int] | None:
    """Return the whole numbers of a row of them; None for anything else."""
    if isinstance(y, Tensor | np.ndarray):
        whole = y.dtype in WHOLE if isinstance(y, Tensor) else y.dtype.kind in "iu"
        return y.tolist() if whole and y.ndim == 1 else None
    if isinstance(y, list | tuple) and all(type(label) is int for label in y):
        return list(y)
    return None


def plain_label(label: Any) -> Label:
    """Return the label as a plain value that can be saved; raise ValueError for one that cannot.

    NumPy's scalars, and tensors of one number, become the number that they hold.
    """
    if isinstance(label, np.generic | Tensor) and np.ndim(label) == 0:
        label = label.item()
    if isinstance(label, float) and label != label:
        raise ValueError("a label is NaN: leave the row out, or give it a label")
    if isinstance(label, tuple):
        return tuple(plain_label(part) for part in label)
    if isinstance(label, Plain):
        return label
    raise ValueError(
        f"a label is a {type(label).__name__}, which cannot be saved: give text, numbers, or tuples of these"
    )
