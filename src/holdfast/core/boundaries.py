"""Boundaries of tasks that are found in the stream: detectors on the loss and on the features."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.detectors import Adwin, Detector, DetectorName, PageHinkley, make_detector
from holdfast.core.state import Count, State, Stateful

LOOKS_BACK = 100  # batches over which the usual features are averaged
LATELY, USUALLY = 20, 500  # batches that the two running means of the loss are over
OF_LOSS, OF_FEATURES = 3.0, 6.0  # thresholds of Page-Hinkley
REST = 50  # batches after a boundary in which none is found: learning begins anew there, and its loss moves


class BatchAdwin(Adwin):
    """ADWIN that checks more often: a value stands for a batch, and 32 batches are long."""

    EVERY = 4


def batch_detector(name: DetectorName, threshold: float) -> Detector:
    """Return the detector `name` for values of whole batches, which are less noisy than those of samples.

    Args:
        threshold: λ of Page-Hinkley, in batches.
    """
    if name == "adwin":
        return BatchAdwin()
    return PageHinkley(delta=0.05, threshold=threshold) if name == "page_hinkley" else make_detector(name)


class Boundaries(Stateful):
    """Finds the batches at which a stream has changed, by two detectors.

    | signal | of a batch |
    |---|---|
    | `loss` | 1 - exp(-loss), so that any loss is between 0 and 1 |
    | `features` | d / (1 + d), where d is how far the mean of its features is from the usual one, in spreads |

    The loss rises where known inputs get other classes or new ones come; features move where other inputs come. Only a
    rise of the loss is a change, since learning lowers it.

    Example:
        >>> boundaries = Boundaries("adwin")
        >>> features = torch.randn(1200, 10, 2, generator=torch.Generator().manual_seed(0))
        >>> found = [(i, boundaries.update(0.1 + (i >= 600), features[i])) for i in range(1200)]
        >>> [(i, signal) for i, signal in found if signal]
        [(615, 'loss')]
    """

    replaced: ClassVar[frozenset[str]] = frozenset({"usual", "found"})

    since: Count
    n_batches: Count
    lately: Annotated[float, Field(ge=0, le=1)]
    usually: Annotated[float, Field(ge=0, le=1)]
    spread: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def __init__(self, detector: DetectorName) -> None:
        self.detector: DetectorName = detector
        self.loss, self.features = batch_detector(detector, OF_LOSS), batch_detector(detector, OF_FEATURES)
        self.lately = self.usually = 0.0  # running means of the loss, by which a rise is told from a fall
        self.since = 0  # the last boundary, in batches
        self.n_batches = 0
        self.usual: Tensor | None = None  # (d,) the mean of features
        self.spread = 0.0  # of batch means around it, a running mean of squares
        self.found: list[list[Any]] = []  # [batch, signal] of the newest 100

    def update(self, loss: float, features: Tensor) -> str | None:
        """Take in the loss and the features (n, d) of a batch; give the signal that has changed, or None."""
        self.n_batches += 1
        self.since += 1
        value = 1 - math.exp(-max(loss, 0.0)) if math.isfinite(loss) else 1.0
        self.lately += (value - self.lately) / min(self.since, LATELY)
        self.usually += (value - self.usually) / min(self.since, USUALLY)
        # Both are fed at every batch: a detector must not miss one because the other was quicker.
        rose = self.loss.update(value) and self.lately > self.usually
        moved = self._features_moved(features)
        signal = "loss" if rose else "features" if moved else None
        if signal is None or self.since <= REST:
            return None
        self.found = [*self.found, [self.n_batches, signal]][-100:]
        self.since, self.lately, self.usually = 0, 0.0, 0.0
        self.usual, self.spread = None, 0.0
        self.loss, self.features = batch_detector(self.detector, OF_LOSS), batch_detector(self.detector, OF_FEATURES)
        return signal

    def _features_moved(self, features: Tensor) -> bool:
        mean = features.detach().double().mean(dim=0).cpu()
        if self.usual is None or self.usual.shape != mean.shape:
            self.usual = mean
            return False
        squared = float((mean - self.usual).square().sum())
        self.spread += (squared - self.spread) / min(max(self.since, 1), LOOKS_BACK)
        distance = math.sqrt(squared / max(self.spread, 1e-24))
        self.usual = self.usual + (mean - self.usual) / min(max(self.since, 1), LOOKS_BACK)
        return self.features.update(distance / (1 + distance))

    def load_state_dict(self, state: State) -> None:
        """Restore; raise ValueError for features that are not finite, or signals that do not exist."""
        usual, found = state.get("usual"), state.get("found")
        if usual is not None and not (isinstance(usual, Tensor) and usual.ndim == 1 and torch.isfinite(usual).all()):
            raise ValueError("the saved usual features are no finite row of numbers")
        if not isinstance(found, list) or any(
            not isinstance(each, list) or len(each) != 2 or type(each[0]) is not int or each[1] not in SIGNALS
            for each in found
        ):
            raise ValueError("the saved boundaries are no list of batches and signals")
        if state.get("detector") != self.detector:
            raise ValueError(f"the saved boundaries were found by {state.get('detector')!r}, not '{self.detector}'")
        super().load_state_dict(state)


SIGNALS = ("loss", "features")
