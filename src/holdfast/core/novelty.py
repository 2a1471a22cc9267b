"""Distance of features to those that are remembered, and the distance beyond which a sample is called unknown."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.state import Count, State, Stateful

REMEMBERED = 256  # stored samples, at most, that distances are measured to
KEPT = 500  # distances of the newest samples
CHUNK = 512  # samples whose distances are worked out at once


class Novelty(Stateful):
    """The distance beyond which a sample is unknown, learned from samples before they were learned.

    A sample's distance is that of its features to the nearest remembered ones. Its unit is the median distance among
    the remembered samples themselves, so that features of another scale make no alarm. With distances d_1 … d_n of
    samples of known classes, the threshold is the

        ⌈(n + 1) (1 - false_alarms)⌉ -th smallest of them

    A new sample like these is then beyond it with a probability of at most `false_alarms` (the split conformal bound;
    Papadopoulos et al., ECML 2002). As long as n is too small for that, nothing is unknown.

    Args:
        false_alarms: the share of samples of known classes that may be called unknown.

    Example:
        >>> novelty = Novelty(0.1)
        >>> for i in range(30):
        ...     novelty.update(torch.tensor([[float(i % 2), 0.1 * (i % 5)]]), torch.eye(2))
        >>> novelty.is_unknown(torch.tensor([[0.9, 0.1], [30.0, 30.0]]), torch.eye(2)).tolist()
        [False, True]
    """

    replaced: ClassVar[frozenset[str]] = frozenset({"distances"})

    false_alarms: Annotated[float, Field(gt=0, lt=1)]
    distances: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]]
    n_seen: Count

    def __init__(self, false_alarms: float) -> None:
        if not 0 < false_alarms < 1:
            raise ValueError(f"a rate of false alarms of {false_alarms}: give a number between 0 and 1, such as 0.05")
        self.false_alarms = false_alarms
        self.distances = []  # the newest last
        self.n_seen = 0

    @property
    def threshold(self) -> float:
        """Largest distance that is still known; infinite while too few samples were seen."""
        rank = math.ceil((len(self.distances) + 1) * (1 - self.false_alarms))
        return sorted(self.distances)[rank - 1] if rank <= len(self.distances) else math.inf

    def update(self, features: Tensor, remembered: Tensor) -> None:
        """Take in features (n, d) of samples of known classes, before they are learned."""
        if len(remembered) < 2 or not len(features):
            return
        found = [distance for distance in nearest(features, remembered).tolist() if math.isfinite(distance)]
        self.distances = [*self.distances, *found][-KEPT:]
        self.n_seen += len(found)

    def is_unknown(self, features: Tensor, remembered: Tensor) -> Tensor:
        """Return (n,), true where features (n, d) are farther from the remembered (m, d) than known samples are."""
        if len(remembered) < 2:
            return torch.zeros(len(features), dtype=torch.bool)
        return nearest(features, remembered) > self.threshold

    def load_state_dict(self, state: State) -> None:
        """Restore; raise ValueError for more distances than are kept."""
        super().load_state_dict(state)
        if not len(self.distances) <= min(KEPT, self.n_seen):
            raise ValueError(f"{len(self.distances)} saved distances of {self.n_seen} samples")


def spread_slots(n: int) -> Tensor:
    """Return up to `REMEMBERED` slots evenly over n, the same ones at every call."""
    k = min(n, REMEMBERED)
    return torch.arange(k) * n // max(k, 1)


def nearest(features: Tensor, remembered: Tensor) -> Tensor:
    """Return (n,), the distance of features (n, d) to the nearest remembered (m, d), in the median such distance.

    Float64 on the processor, so that the number of samples that are asked for at once changes no bit.
    """
    features, remembered = features.detach().cpu().double(), remembered.detach().cpu().double()
    own = torch.cdist(remembered, remembered, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(math.inf)
    unit = own.amin(dim=1).median().clamp_min(1e-12)
    parts = [
        torch.cdist(part, remembered, compute_mode="donot_use_mm_for_euclid_dist").amin(dim=1)
        for part in torch.split(features, CHUNK)
    ]
    return torch.cat(parts) / unit
