"""Members of a centroid: the slots whose samples belong to it, and bounds of their distances from it."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]
T = TypeVar("T")

ROUNDING = 1.001  # a length that exceeds another by this factor is the longer one, however both were worked out
TIE = 1e-5  # numbers that differ by less than this part count as equal: rounding would decide between them
_FEW = 32  # members that are all measured at once; a bound would cost more than it saves


class Members:
    """Slots of one centroid; finds the farthest member without measuring all of them.

    A member was `bound + travel` away when it was measured last, and the path of the centroid since then has been
    added to `travel`. So no member is farther away now than `bound + travel`.
    """

    __slots__ = ("_bounds", "_slots", "n", "travel")

    def __init__(self, slots: Array | None = None) -> None:
        self.n = 0 if slots is None else len(slots)
        self._slots: Array = np.empty(0, np.int64) if slots is None else slots
        self._bounds: Array = np.full(len(self._slots), np.inf, np.float32)
        self.travel = 0.0

    def __len__(self) -> int:
        return self.n

    @property
    def slots(self) -> Array:
        """(n,) slots of the members."""
        return self._slots[: self.n]

    def reach(self) -> float:
        """Return a length that no member exceeds; minus infinity without members."""
        return float(self._bounds[: self.n].max()) + self.travel if self.n else -np.inf

    def add(self, slot: int, distance: float) -> None:
        """Take in the sample in `slot`, which is `distance` away from the centroid."""
        if self.n == len(self._slots):
            rooms = max(4, 2 * self.n)
            self._slots = np.resize(self._slots, rooms)
            self._bounds = np.resize(self._bounds, rooms)
        self._slots[self.n], self._bounds[self.n] = slot, distance - self.travel
        self.n += 1

    def replace(self, place: int, distance: float) -> None:
        """Put a new sample, `distance` away, over the one in the slot of member number `place`."""
        self._bounds[place] = distance - self.travel

    def remove(self, place: int) -> None:
        """Let member number `place` go; the last member takes its number."""
        self.n -= 1
        self._slots[place], self._bounds[place] = self._slots[self.n], self._bounds[self.n]

    def join(self, other: Members) -> None:
        """Take in all members of another centroid; nothing is known about their distances."""
        self._slots = np.concatenate([self.slots, other.slots])
        self.n = len(self._slots)
        self._bounds = np.full(self.n, np.inf, np.float32)

    def farthest(self, centre: Array, stored: Array, newcomer: float | None, rng: torch.Generator) -> int | None:
        """Find the number of the member that is farthest from `centre` (d,); equal ones are drawn among.

        Args:
            stored: (slots, d) features by slot.
            newcomer: the distance of a sample that competes too; the answer is None if that sample is the farthest.
        """
        bounds = self._bounds[: self.n]
        if self.n > _FEW:
            top = int(bounds.argmax())
            at_least = (1 - TIE) * self._measure(np.array([top]), centre, stored)[0]
            near_top = (ROUNDING * (bounds + self.travel) >= at_least).nonzero()[0]
        else:
            near_top = np.arange(self.n)
        distances = self._measure(near_top, centre, stored)
        farthest = max(distances.max(), -np.inf if newcomer is None else newcomer)
        places = near_top[distances >= (1 - TIE) * farthest]
        places = places[self._slots[places].argsort()]  # in an order that does not hang on the past
        ties: list[int | None] = places.tolist()
        if newcomer is not None and newcomer >= (1 - TIE) * farthest:
            ties.append(None)
        return one_of(ties, rng)

    def _measure(self, places: Array, centre: Array, stored: Array) -> Array:
        distances = norms(stored.take(self._slots[places], axis=0) - centre)
        self._bounds[places] = distances - self.travel
        return distances


def one_of(candidates: list[T], rng: torch.Generator) -> T:
    """Draw one of the candidates; a single one needs no draw."""
    return candidates[0 if len(candidates) == 1 else int(torch.randint(len(candidates), (), generator=rng))]


def squares(rows: Array) -> Array:
    """Return (…), the squared length of each row (…, d)."""
    found: Array = np.vecdot(rows, rows)
    return found


def norms(rows: Array) -> Array:
    """Return (…), the length of each row (…, d)."""
    found: Array = np.sqrt(squares(rows))
    return found
