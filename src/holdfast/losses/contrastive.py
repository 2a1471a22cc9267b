"""The supervised contrastive loss."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def contrastive_loss(features: Tensor, y: Tensor, *, temperature: float) -> Tensor:
    """Pull samples of one class together and push all others away (SupCon, L_out).

        loss_i = -1/|P(i)| Σ_{p ∈ P(i)} log( exp(z_i·z_p / τ) / Σ_{a ≠ i} exp(z_i·z_a / τ) )          Eq. 2

    z are the features at length one; P(i) are the other samples of i's class.

    Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020.

    Args:
        features: (n, d); only directions count.
        y: (n,) the class of each row.
        temperature: τ.

    Returns:
        The mean over rows that have a positive; zero when none has. The paper sums; a mean keeps the learning rate
        free of the batch's size.

    Example:
        >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> near, far = (contrastive_loss(features, torch.tensor(y), temperature=0.1) for y in ([0, 0, 1], [0, 1, 0]))
        >>> bool(near < far)
        True
    """
    unit = F.normalize(features, dim=1)
    logits = unit @ unit.T / temperature
    itself = torch.eye(len(y), dtype=torch.bool, device=y.device)
    positive = (y[:, None] == y) & ~itself

    log_denominator = logits.masked_fill(itself, -math.inf).logsumexp(dim=1, keepdim=True)
    pair_loss = (log_denominator - logits).masked_fill(~positive, 0)
    n_positives = positive.sum(dim=1)
    row_loss = pair_loss.sum(dim=1) / n_positives.clamp(min=1)
    return row_loss.sum() / (n_positives > 0).sum().clamp(min=1)
