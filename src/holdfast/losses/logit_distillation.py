"""The logit term of Dark Experience Replay."""

from __future__ import annotations

import torch
from torch import Tensor


def logit_distillation_loss(logits: Tensor, stored: Tensor, n_units: Tensor, weights: Tensor | None = None) -> Tensor:
    """Hold the logits of old samples where they were when each was stored.

        loss = || h(x) - z ||²

    Averaged over all numbers compared, as in the authors' code: those of the units that the head had when the sample
    was stored. A head that grew later does not know the earlier scores of its new units.

    Args:
        logits: (n, m) h(x), as they are now, with gradient.
        stored: (n, k) z, as they were, k ≤ m; a row counts up to its n_units and is filled up behind them.
        n_units: (n,) how many units the head had then, at least one and at most k.
        weights: (n,) how much each sample counts; None for all 1.

    Example:
        >>> now, stored = torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[0.0, 0.0]])
        >>> logit_distillation_loss(now, stored, n_units=torch.tensor([2]))
        tensor(2.5000)
    """
    n_columns = stored.shape[1]
    had_unit = torch.arange(n_columns, device=stored.device) < n_units[:, None]
    squares = ((logits[:, :n_columns] - stored) * had_unit).square()
    return (squares if weights is None else squares * weights[:, None]).sum() / n_units.sum()
