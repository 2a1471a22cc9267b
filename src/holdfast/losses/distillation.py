"""The centroid distillation loss (CDL) of Drift-Reducing Rehearsal."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def distillation_loss(features: Tensor, stored: Tensor, weights: Tensor | None = None) -> Tensor:
    """Hold features where they were when their task was learned.

        loss = || f(x) - f_stored ||²                                            Eq. lossf

    Averaged over samples and dimensions, so that its weight depends on neither.

    Args:
        features: (n, d) as they are now, with gradient. stored: (n, d) as they were.
        weights: (n,) how much each sample counts; None for all 1.

    Example:
        >>> import torch
        >>> distillation_loss(torch.zeros(1, 2), torch.tensor([[1.0, 3.0]]))
        tensor(5.)
    """
    if weights is None:
        return F.mse_loss(features, stored)
    return ((features - stored).square().mean(dim=1) * weights).mean()
