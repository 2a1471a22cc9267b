"""Sums of features that come out the same to the bit, whatever the order and the batches of the samples."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from holdfast.core.state import State, Stateful

BLOCK = 1024  # samples that wait to be summed together: one large product is faster than many small ones
BITS = 20  # of a digit: a feature is a coarse and a fine digit, hence a whole number of 40 bits
WINDOW = 6  # octaves of samples that share a unit
MAX_OF_A_CLASS = 2**22  # samples: their sum of numbers of 40 bits then fits into 63 bits
MAX_SQUARES = 2**62  # no sum of products is larger than the largest sum of squares, which has to fit as well
PANEL = 320  # rows of the matrix of products that are worked out at once, and stay in a processor's cache


class ClassSums(Stateful):
    """Counts and sums of features by class, and the sum of their products: n_c, Σ x and Σ x xᵀ.

    A sum of floats depends on its order by rounding. Here each sample is first written as whole numbers of a unit, and
    whole numbers add up exactly. The unit depends on the sample alone: samples whose largest number lies in the same
    window of 6 octaves have the same one, and every window has its own sums. A number is kept to 40 bits, counted from
    the top of its window; of Σ x xᵀ the products of two fine digits are left out, each below 2^-30 of the square of the
    sample's largest number. So sums are associative: any order, any batches, any parts that are merged and anything
    that is subtracted lead to the same bits.

    Samples wait in blocks. They are summed before anything is saved, so that no sample is ever written to a file.
    No tensor, dict or list here is ever written over: a sum that changes is a new one. So a copy is a shallow one.

    Args:
        products: whether Σ x xᵀ is kept.
    """

    derived: ClassVar[frozenset[str]] = frozenset({"waiting", "n_waiting", "largest"})
    replaced: ClassVar[frozenset[str]] = frozenset(
        {"counts", "n_by_window", "sums_by_window", "coarse_by_window", "cross_by_window", "waiting"}
    )

    def __init__(self, n_classes: int, n_features: int, *, products: bool) -> None:
        self.n_features = n_features
        self.products = products
        self.counts = torch.zeros(n_classes, dtype=torch.int64)  # samples by class, those that wait included
        # By window: samples, Σ x by class (n_classes, n_features), and Σ x xᵀ: the products of two coarse digits
        # (its lower triangle), and those of a coarse and a fine one.
        self.n_by_window: dict[int, int] = {}
        self.sums_by_window: dict[int, Tensor] = {}
        self.coarse_by_window: dict[int, Tensor] = {}
        self.cross_by_window: dict[int, Tensor] = {}
        self.waiting: list[tuple[Tensor, Tensor]] = []
        self.n_waiting = 0
        self.largest: int | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> ClassSums:
        return copy.copy(self)

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    @property
    def n_samples(self) -> int:
        return int(self.counts.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the sums of all windows that samples were seen in."""
        kept = (self.sums_by_window, self.coarse_by_window, self.cross_by_window)
        return self.counts.nbytes + sum(tensor.nbytes for by_window in kept for tensor in by_window.values())

    def grow(self, n_classes: int) -> None:
        """Make room for `n_classes` classes."""
        missing = n_classes - self.n_classes
        self.counts = torch.cat([self.counts, self.counts.new_zeros(missing)])
        self.sums_by_window = {
            window: torch.cat([sums, sums.new_zeros(missing, self.n_features)])
            for window, sums in self.sums_by_window.items()
        }

    def add(self, features: Tensor, y: Tensor) -> None:
        """Add samples: features (n, n_features), all finite, of the classes y (n,)."""
        features, y = features.detach().cpu(), y.cpu()
        counts = self.counts + torch.bincount(y, minlength=self.n_classes)
        self._check_room(counts)
        self.counts = counts
        self.waiting = [*self.waiting, (features, y)]
        self.n_waiting += len(y)
        if self.n_waiting >= BLOCK:
            self.fold()

    def fold(self) -> None:
        """Add up the samples that wait."""
        if self.waiting:
            features, y = (torch.cat(column) for column in zip(*self.waiting, strict=True))
            self._take(features.double(), y, sign=1)
            self.waiting, self.n_waiting = [], 0

    def subtract(self, features: Tensor, y: Tensor) -> None:
        """Take samples out again, as if they had never come; ValueError if they cannot have been among those added."""
        self.fold()
        features, y = features.detach().cpu().double(), y.cpu()
        fewer = self.counts - torch.bincount(y, minlength=self.n_classes)
        if (fewer < 0).any():
            c = int(fewer.argmin())
            raise ValueError(
                f"class {c} has {int(self.counts[c])} samples, {-int(fewer[c])} fewer than to be forgotten"
            )
        windows = _windows(features)
        for window, n in Counter(windows.tolist()).items():
            if n > self.n_by_window.get(window, 0):
                raise ValueError("samples of this size were not learned: forget only what was")
        self._take(features, y, sign=-1)
        self.counts = fewer

    def merge(self, other: ClassSums) -> None:
        """Add the sums of other samples."""
        if (other.n_features, other.products) != (self.n_features, self.products):
            raise ValueError(f"sums of {other.n_features} features cannot be merged into those of {self.n_features}")
        self.fold()
        other.fold()
        counts = torch.zeros(max(self.n_classes, other.n_classes), dtype=torch.int64)
        for each in (self, other):
            counts[: each.n_classes] += each.counts
        self._check_room(counts, other)
        if len(counts) > self.n_classes:
            self.grow(len(counts))
        self.counts = counts
        for window, n in other.n_by_window.items():
            self._open(window)
            self.n_by_window[window] += n
            self.sums_by_window[window][: other.n_classes] += other.sums_by_window[window]
            if self.products:
                self.largest = None
                self.coarse_by_window[window] += other.coarse_by_window[window]
                self.cross_by_window[window] += other.cross_by_window[window]

    def sums(self) -> Tensor:
        """Return (n_classes, n_features) Σ x by class, float64, of the samples that do not wait."""
        total = torch.zeros(self.n_classes, self.n_features, dtype=torch.float64)
        for window, sums in self.sums_by_window.items():
            total.add_(sums.double(), alpha=_unit(window) * 2.0**-BITS)
        return total

    def gram(self) -> Tensor:
        """Return (n_features, n_features) Σ x xᵀ, float64, of the samples that do not wait."""
        total = torch.zeros(self.n_features, self.n_features, dtype=torch.float64)
        for window, coarse in self.coarse_by_window.items():  # half of it, the other half is its transpose
            unit = _unit(window) ** 2
            squares = coarse.double().tril_()
            squares.diagonal().mul_(0.5)
            total.add_(squares, alpha=unit).add_(self.cross_by_window[window].double(), alpha=unit * 2.0**-BITS)
        return total + total.T

    def state_dict(self) -> State:
        self.fold()
        return super().state_dict()

    def load_state_dict(self, state: State) -> None:
        _check_shapes(self, state)
        super().load_state_dict(state)
        self.waiting, self.n_waiting, self.largest = [], 0, None

    def _check_room(self, counts: Tensor, *others: ClassSums) -> None:
        """Raise before a sum no longer fits into 63 bits."""
        largest = max(each._largest_square() for each in (self, *others))
        # Half of the room is left to what waits, and to each of two that are merged.
        if int(counts.max()) > MAX_OF_A_CLASS or largest > MAX_SQUARES // 4:
            raise ValueError("the sums are full: whole numbers of 63 bits hold no more samples; begin another learner")

    def _largest_square(self) -> int:
        """Return the largest sum of squares of coarse digits, looked for once after each change."""
        if self.largest is None:
            squares = [coarse.diagonal() for coarse in self.coarse_by_window.values()]
            self.largest = max((int(some.max()) for some in squares), default=0)
        return self.largest

    def _take(self, features: Tensor, y: Tensor, *, sign: int) -> None:
        windows = _windows(features)
        for window in sorted(set(windows.tolist())):
            rows = slice(None) if (windows == window).all() else windows == window
            scaled = features[rows] * (1 / _unit(window))
            coarse = scaled.round()
            fine = scaled.sub_(coarse).mul_(2.0**BITS).round_()
            self._open(window)
            self.n_by_window[window] += sign * len(coarse)
            whole = torch.add(fine, coarse, alpha=2.0**BITS).to(torch.int64)
            self.sums_by_window[window].index_add_(0, y[rows], whole, alpha=sign)
            if self.products:
                self._take_products(window, coarse, fine, sign)
            if self.n_by_window[window] == 0:
                self._close(window)

    def _take_products(self, window: int, coarse: Tensor, fine: Tensor, sign: int) -> None:
        """Σ of the products of digits: whole numbers below 2^53, which float64 adds exactly in any order."""
        d, self.largest = self.n_features, None
        squares, crosses = self.coarse_by_window[window], self.cross_by_window[window]
        product = coarse.new_empty(PANEL * d)  # used again for each panel: to allocate takes as long as to add
        whole = torch.empty(PANEL * d, dtype=torch.int64)

        def add(total: Tensor, left: Tensor, right: Tensor) -> None:
            n, shape = total.numel(), total.shape
            torch.mm(left, right, out=product[:n].view(shape))
            total.add_(whole[:n].view(shape).copy_(product[:n].view(shape)), alpha=sign)

        for block in range(0, len(coarse), BLOCK):
            some_coarse, some_fine = coarse[block : block + BLOCK], fine[block : block + BLOCK]
            for start in range(0, d, PANEL):
                stop = min(start + PANEL, d)
                panel = some_coarse[:, start:stop].T
                add(squares[start:stop, :stop], panel, some_coarse[:, :stop])
                if some_fine.any():  # not for bytes, nor for numbers of 16 bits
                    add(crosses[start:stop], panel, some_fine)

    def _open(self, window: int) -> None:
        """Make sums of the window that may be written over: copies, or zeros."""
        d = self.n_features
        self.n_by_window = _with(self.n_by_window, window, self.n_by_window.get(window, 0))
        self.sums_by_window = _with(
            self.sums_by_window, window, _copy_or_zeros(self.sums_by_window.get(window), self.n_classes, d)
        )
        if self.products:
            self.coarse_by_window, self.cross_by_window = (
                _with(by_window, window, _copy_or_zeros(by_window.get(window), d, d))
                for by_window in (self.coarse_by_window, self.cross_by_window)
            )

    def _close(self, window: int) -> None:
        self.n_by_window, self.sums_by_window = (
            _without(self.n_by_window, window),
            _without(self.sums_by_window, window),
        )
        self.coarse_by_window = _without(self.coarse_by_window, window)
        self.cross_by_window = _without(self.cross_by_window, window)


T = TypeVar("T")


def _with(by_window: dict[int, T], window: int, value: T) -> dict[int, T]:
    """Return the windows in their order, not in the order of their first samples."""
    return dict(sorted({**by_window, window: value}.items()))


def _without(by_window: dict[int, T], window: int) -> dict[int, T]:
    return {each: value for each, value in by_window.items() if each != window}


def _copy_or_zeros(tensor: Tensor | None, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64) if tensor is None else tensor.clone()


def _windows(features: Tensor) -> Tensor:
    """Return (n,), the window of each sample: its largest number is below 2^(6w + 3), and not below 2^(6w - 3)."""
    exponents = torch.frexp(features.abs().amax(dim=1)).exponent
    return torch.div(exponents.to(torch.int64) + WINDOW // 2 - 1, WINDOW, rounding_mode="floor")


def _unit(window: int) -> float:
    """Return the unit of a coarse digit; the unit of a fine digit is 2^20 times smaller."""
    return 2.0 ** (WINDOW * window + WINDOW // 2 - BITS)


def _check_shapes(sums: ClassSums, state: State) -> None:
    """Raise if the saved sums are not whole, or are of other features."""
    n, d = len(state["counts"]), sums.n_features
    shapes = {
        "sums_by_window": (n, d),
        **({"coarse_by_window": (d, d), "cross_by_window": (d, d)} if sums.products else {}),
    }
    if (state["n_features"], state["products"]) != (d, sums.products):
        raise ValueError(f"the saved sums are of {state['n_features']} features, but here there are {d}")
    counts, by_window = state["counts"], state["n_by_window"]
    if counts.dtype != torch.int64 or counts.ndim != 1 or (counts < 0).any():
        raise ValueError("the saved sums are not whole: their counts are not whole numbers from 0")
    if int(counts.sum()) != sum(by_window.values()) or any(n_samples < 1 for n_samples in by_window.values()):
        raise ValueError("the saved sums are not whole: classes and windows do not have as many samples")
    for name in ("sums_by_window", "coarse_by_window", "cross_by_window"):
        if list(state[name]) != (sorted(by_window) if name in shapes else []):
            raise ValueError(f"the saved sums are not whole: {name} is not of the windows {sorted(by_window)}")
        for window, tensor in state[name].items():
            if tuple(tensor.shape) != shapes[name] or tensor.dtype != torch.int64:
                raise ValueError(
                    f"the saved sums are not whole: {name}[{window}] is {tensor.dtype} {tuple(tensor.shape)}, "
                    f"not int64 {shapes[name]}"
                )
            if not -25 <= window <= 22:
                raise ValueError(f"the saved sums are not whole: no number lies in window {window}")
