"""The last good weights of a stream, and the signs that learning has run away from them."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from pydantic import Field

from holdfast.core.state import Count, State, Stateful, _copied

EVERY = 50  # batches between two looks at whether the weights are good
FIRST = 10  # batches whose loss says what is usual
FACTOR = 20.0  # times the usual loss, of the mean of a few: runaway
MOST = 40  # recoveries in a row: beyond, other weights do not help
LARGEST = 1e6  # loss that can be usual
RECENT = 5  # batches that this mean is over, about


class RecoveryWarning(UserWarning):
    """Learning ran away and went back to the last good weights; the message says when, and what was changed."""


class Recovery(Stateful):
    """Keeps the last good weights and says when they are needed.

    Learning has run away where the loss is no number, or where its mean over about `RECENT` batches is beyond
    `FACTOR` times the usual loss: the smallest of the first `FIRST` batches, within 1 to `LARGEST`.

    Example:
        >>> recovery = Recovery()
        >>> [recovery.ran_away(loss) for loss in (0.7, 0.6, 30.0, 1e9, math.inf)]
        [False, False, False, True, True]
    """

    replaced: ClassVar[frozenset[str]] = frozenset({"good"})

    n_recovered: Count
    in_a_row: Count
    n_batches: Count
    usual: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    smallest: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    level: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def __init__(self) -> None:
        self.n_recovered = 0
        self.in_a_row = 0  # since good weights were kept
        self.n_batches = 0
        self.usual = 1.0
        self.smallest = 0.0  # loss of the first batches
        self.level = 0.0
        self.good: State = {}  # what `keep` was last given

    @property
    def is_due(self) -> bool:
        """True if weights are to be kept now: learning is as usual, and the last ones were kept a while ago."""
        return self.n_batches % EVERY == 0 and self.level <= 2 * self.usual

    def ran_away(self, loss: float, *, is_expected: bool = False) -> bool:
        """Take in the loss of a batch; tell if it is one of learning that has run away.

        Args:
            is_expected: the loss may be large for another reason, so its size says nothing.
        """
        if not math.isfinite(loss):
            return True
        loss = min(max(loss, 0.0), 1e30)
        self.n_batches += 1
        if self.n_batches <= FIRST:
            self.smallest = min(self.smallest, loss) if self.n_batches > 1 else loss
            self.usual = min(max(self.smallest, 1.0), LARGEST)
        if is_expected:
            return False
        self.level += (loss - self.level) / min(self.n_batches, RECENT)
        return self.level > FACTOR * self.usual and self.in_a_row < MOST

    def keep(self, state: State) -> None:
        """Keep a copy of good weights."""
        self.in_a_row = 0
        self.good = _copied(state)

    def recovered(self) -> None:
        """Note that learning goes on from the good weights."""
        self.n_recovered += 1
        self.in_a_row += 1
        self.level = 0.0
