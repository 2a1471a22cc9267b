"""Detectors of change in a sequence of numbers: ADWIN, DDM and Page-Hinkley."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal, get_args

from pydantic import Field

from holdfast.core.state import Count, State, Stateful

DetectorName = Literal["adwin", "ddm", "page_hinkley"]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Detector(Stateful):
    """Watches a sequence of numbers for a change of its mean."""

    n_alarms: Count

    def __init__(self) -> None:
        self.n_alarms = 0

    def update(self, value: float) -> bool:
        """Take in the next number; give True where the sequence has changed."""
        if not math.isfinite(value):
            raise ValueError(f"a detector was given {value}: give finite numbers")
        changed = self._changed(value)
        self.n_alarms += changed
        return changed

    @abstractmethod
    def _changed(self, value: float) -> bool:
        """Take in the next number; give True, and begin anew, where the sequence has changed."""


class Adwin(Detector):
    """Adaptive windowing: the longest window whose older and newer part have the same mean.

    Bifet and Gavaldà, "Learning from Time-Changing Data with Adaptive Windowing", SIAM SDM 2007. The window is kept in
    buckets of 2^i numbers, at most `MAX_BUCKETS` of a size. Memory and time grow with the logarithm of its length.
    Older and newer part of n_0 and n_1 numbers differ if

        |μ_0 - μ_1| > √(2 / m · σ² · ln(2 ln n / δ)) + 2 / (3 m) · ln(2 ln n / δ),    1 / m = 1 / n_0 + 1 / n_1

    Then the oldest bucket is dropped, and the rest is checked again. A rise and a fall of the mean are changes. Checks
    are made every 32 numbers.

    Args:
        delta: δ, the confidence: smaller is fewer alarms.

    Example:
        >>> adwin = Adwin()
        >>> [i for i in range(2000) if adwin.update(float(i >= 1000))]
        [1023, 1055]
    """

    MAX_BUCKETS = 5
    EVERY = 32
    SHORTEST = 5  # numbers in each of two parts that are compared
    FIRST = 10  # numbers before the first check

    width: Count
    n_seen: Count
    delta: Finite
    sizes: list[Count]
    sums: list[Finite]
    deviations: list[Finite]

    def __init__(self, delta: float = 0.002) -> None:
        super().__init__()
        if not 0 < delta < 1:
            raise ValueError(f"delta is {delta}: give a number between 0 and 1")
        self.delta = delta
        self.n_seen = 0
        self.width = 0
        self.sizes = []  # of the buckets, the oldest first
        self.sums = []
        self.deviations = []  # Σ (x - mean of the bucket)²

    @property
    def mean(self) -> float:
        """Mean of the window."""
        return sum(self.sums) / self.width if self.width else 0.0

    def _changed(self, value: float) -> bool:
        self.n_seen += 1
        self.width += 1
        self.sizes.append(1)
        self.sums.append(value)
        self.deviations.append(0.0)
        self._compress()
        if self.n_seen % self.EVERY or self.width <= self.FIRST:
            return False
        before, changed, dropped = self.mean, False, True
        while dropped and self.width > 2 * self.SHORTEST:
            dropped = self._drop_if_different()
            changed = changed or dropped
        return changed and self.mean != before

    def _compress(self) -> None:
        """Merge the two oldest buckets of each size that has too many."""
        end = len(self.sizes)
        size = 1
        while True:
            start = end
            while start and self.sizes[start - 1] == size:
                start -= 1
            if end - start <= self.MAX_BUCKETS:
                return
            self._merge(start)
            end = start + 1
            size *= 2

    def _merge(self, i: int) -> None:
        """Merge the buckets i and i + 1, which have the same size."""
        size = self.sizes[i]
        gap = (self.sums[i] - self.sums[i + 1]) / size
        self.deviations[i] += self.deviations[i + 1] + gap * gap * size / 2
        self.sums[i] += self.sums[i + 1]
        self.sizes[i] = 2 * size
        del self.sizes[i + 1], self.sums[i + 1], self.deviations[i + 1]

    def _drop_if_different(self) -> bool:
        """Drop the oldest bucket if some older part has another mean than the rest."""
        n, total = self.width, sum(self.sums)
        mean = total / n
        spread = sum(self.deviations) + sum(
            size * (part / size - mean) ** 2 for size, part in zip(self.sizes, self.sums, strict=True)
        )
        variance, confidence = spread / n, math.log(2 * math.log(n) / self.delta)
        n_old, old = 0, 0.0
        for size, part in zip(self.sizes[:-1], self.sums[:-1], strict=True):
            n_old, old = n_old + size, old + part
            n_new = n - n_old
            if n_new < self.SHORTEST:
                return False
            if n_old < self.SHORTEST:
                continue
            inverse = 1 / n_old + 1 / n_new
            bound = math.sqrt(2 * inverse * variance * confidence) + 2 / 3 * inverse * confidence
            if abs(old / n_old - (total - old) / n_new) > bound:
                self.width -= self.sizes[0]
                del self.sizes[0], self.sums[0], self.deviations[0]
                return True
        return False

    def load_state_dict(self, state: State) -> None:
        """Restore; raise ValueError for buckets that no sequence leads to."""
        super().load_state_dict(state)
        same = len(self.sizes) == len(self.sums) == len(self.deviations)
        if not same or sum(self.sizes) != self.width or min(self.sizes, default=1) < 1:
            raise ValueError("the saved buckets of ADWIN do not add up to its window")


class Ddm(Detector):
    """Drift detection method: the error rate has risen by three standard deviations above its lowest.

    Gama et al., "Learning with Drift Detection", SBIA 2004. Numbers are 1 for an error and 0 for none. A drift is

        p + s > p_min + 3 s_min,    s = √(p (1 - p) / n)

    after 30 numbers; then it begins anew. A lower error rate is no drift.

    Example:
        >>> ddm = Ddm()
        >>> [i for i in range(300) if ddm.update(float(i % 10 == 0 or i > 200))]
        [209]
    """

    FIRST = 30

    n: Count
    rate: Finite
    lowest_rate: Finite | None
    lowest_spread: Finite

    def __init__(self, threshold: float = 3.0) -> None:
        super().__init__()
        if not threshold > 0:
            raise ValueError(f"threshold is {threshold}: give more than 0")
        self.threshold = threshold
        self._begin()

    def _begin(self) -> None:
        self.n = 0
        self.rate = 0.0
        self.lowest_rate = None
        self.lowest_spread = 0.0

    def _changed(self, value: float) -> bool:
        if not 0 <= value <= 1:
            raise ValueError(f"DDM was given {value}: give errors, 0 or 1")
        self.n += 1
        self.rate += (value - self.rate) / self.n
        if self.n <= self.FIRST:
            return False
        spread = math.sqrt(self.rate * (1 - self.rate) / self.n)
        if self.lowest_rate is None or self.rate + spread <= self.lowest_rate + self.lowest_spread:
            self.lowest_rate, self.lowest_spread = self.rate, spread
        changed = self.rate + spread > self.lowest_rate + self.threshold * self.lowest_spread
        if changed:
            self._begin()
        return changed


class PageHinkley(Detector):
    """Page-Hinkley test: the sum of deviations from the running mean has moved far from its extreme.

    Page, "Continuous Inspection Schemes", Biometrika 1954. With the running mean x̄_t,

        U_t = α U_{t-1} + x_t - x̄_t - δ,    L_t = α L_{t-1} + x_t - x̄_t + δ

    a rise is U_t - min U > λ, a fall is max L - L_t > λ.

    Args:
        delta: δ, the change of the mean that is let pass.
        threshold: λ.
        fading: α.

    Example:
        >>> test = PageHinkley(threshold=10.0)
        >>> [i for i in range(300) if test.update(float(i >= 200))]
        [210]
    """

    FIRST = 30

    n: Count
    mean: Finite
    rise: Finite
    lowest_rise: Finite
    fall: Finite
    highest_fall: Finite

    def __init__(self, delta: float = 0.005, threshold: float = 50.0, fading: float = 0.9999) -> None:
        super().__init__()
        if not threshold > 0 or not 0 < fading <= 1:
            raise ValueError(f"threshold is {threshold} and fading {fading}: give more than 0, and 0 to 1")
        self.delta, self.threshold, self.fading = delta, threshold, fading
        self._begin()

    def _begin(self) -> None:
        self.n = 0
        self.mean = 0.0
        self.rise = self.lowest_rise = self.fall = self.highest_fall = 0.0

    def _changed(self, value: float) -> bool:
        self.n += 1
        self.mean += (value - self.mean) / self.n
        self.rise = self.fading * self.rise + value - self.mean - self.delta
        self.fall = self.fading * self.fall + value - self.mean + self.delta
        self.lowest_rise = min(self.lowest_rise, self.rise)
        self.highest_fall = max(self.highest_fall, self.fall)
        moved = max(self.rise - self.lowest_rise, self.highest_fall - self.fall)
        changed = self.n >= self.FIRST and moved > self.threshold
        if changed:
            self._begin()
        return changed


def make_detector(name: DetectorName) -> Detector:
    """Return the detector `name` with the values of its paper, or of common use where the paper states none."""
    if name == "adwin":
        return Adwin()
    if name == "ddm":
        return Ddm()
    if name == "page_hinkley":
        return PageHinkley()
    raise ValueError(f"no detector '{name}': there are {', '.join(get_args(DetectorName))}")
