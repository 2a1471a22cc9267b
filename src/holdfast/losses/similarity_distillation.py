"""Distillation of the similarities between samples."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def similarity_distillation_loss(features: Tensor, stored: Tensor, *, temperature: float) -> Tensor:
    """Hold how similar each sample is to the others, as stored features have it.

        loss = -1/n Σ_i Σ_{j ≠ i} q_ij log p_ij

    p_i is the softmax over j ≠ i of the cosines between features, divided by the temperature; q_i the same of the
    stored features.

    Args:
        features: (n, d) as they are now, with gradient. stored: (n, d) as they were.
        temperature: of both softmaxes.

    Example:
        >>> stored = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
        >>> same, turned = (similarity_distillation_loss(x, stored, temperature=0.5) for x in (stored, stored.flip(0)))
        >>> bool(same < turned)
        True
    """
    if len(features) < 2:
        return features.sum() * 0.0
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)

    def log_shares(rows: Tensor) -> Tensor:
        unit = F.normalize(rows, dim=1)
        return (unit @ unit.T / temperature).masked_fill(itself, -math.inf).log_softmax(dim=1)

    q = log_shares(stored).exp()
    return -(q * log_shares(features).masked_fill(itself, 0.0)).sum(dim=1).mean()
