"""Labels of any kind, and the numbers of the classes that stand for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from holdfast.core.state import Plain, State, Stateful

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
