"""Distillation of scores, as a model that learns without forgetting does with those of its former self."""

from __future__ import annotations

import torch
from torch import Tensor


def score_distillation_loss(scores: Tensor, held: Tensor, groups: Tensor, *, temperature: float) -> Tensor:
    """Hold how the scores of a sample compare within each group of classes.

        loss = T² / |G| Σ_{g ∈ G} KL( softmax(held_g / T) ‖ softmax(scores_g / T) )

    Averaged over samples. T softens both, so that classes which are not the first count too; T² keeps the size of the
    gradient. Hinton et al., "Distilling the Knowledge in a Neural Network", 2015; with a group for each old task it is
    the loss of Li and Hoiem, "Learning without Forgetting", ECCV 2016.

    Args:
        scores: (n, n_classes) as they are now, with gradient. held: (n, n_classes) as they were.
        groups: (g, n_classes) true where a class is of the group; no group is empty.
        temperature: T.

    Example:
        >>> import torch
        >>> held, groups = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[True, True, False]])
        >>> score_distillation_loss(held + 5.0, held, groups, temperature=2.0)  # only differences count
        tensor(0.)
    """
    outside = ~groups[:, None]  # (g, 1, n_classes)
    log_now = (scores / temperature).masked_fill(outside, -torch.inf).log_softmax(dim=2)
    log_then = (held / temperature).masked_fill(outside, -torch.inf).log_softmax(dim=2)
    divergence = (log_then.exp() * (log_then - log_now).masked_fill(outside, 0.0)).sum(dim=2)  # (g, n)
    return temperature**2 * divergence.mean()
