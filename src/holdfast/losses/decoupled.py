"""The loss of new samples in Loss Decoupling (LODE)."""

from __future__ import annotations

import math

from torch import Tensor


def decoupled_loss(
    scores: Tensor, y: Tensor, *, new_classes: Tensor, rho: float, weights: Tensor | None = None
) -> Tensor:
    """Tell new classes from each other, and, with a weight of its own, from old classes.

        loss_i = -log( e^{o_y} / Σ_{c ∈ N} e^{o_c} ) - ρ log( Σ_{c ∈ N} e^{o_c} / Σ_{c ∈ O ∪ N} e^{o_c} )

    With ρ = 1 it is the cross-entropy over all classes, with ρ = 0 that over the new classes.

    Args:
        scores: (n, n_classes) o, minus infinity for a class that does not compete.
        y: (n,) the class of each sample.
        new_classes: (n, n_classes) N, true for new classes; the own class has to be one.
        rho: ρ, the weight of telling new classes from old ones.
        weights: (n,) how much each sample counts; None for all 1.

    Returns:
        The mean over samples.

    Example:
        >>> import torch
        >>> scores, y = torch.zeros(1, 4), torch.tensor([3])
        >>> new = torch.tensor([[False, False, True, True]])
        >>> [round(decoupled_loss(scores, y, new_classes=new, rho=rho).exp().item()) for rho in (0.0, 1.0)]
        [2, 4]
    """
    log_new = scores.masked_fill(~new_classes, -math.inf).logsumexp(dim=1)
    within = log_new - scores.gather(1, y[:, None])[:, 0]
    between = scores.logsumexp(dim=1) - log_new
    losses = within + rho * between
    return losses.mean() if weights is None else (losses * weights).mean()
