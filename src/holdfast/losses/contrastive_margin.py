"""The contrastive margin loss (CML) of Drift-Reducing Rehearsal, against classes or against samples."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# At an angle of 0 or π the sine has an infinite slope in the cosine; below this square it is held constant.
MIN_SQUARED_SINE = 1e-6


def widened(cosines: Tensor, margin: float) -> Tensor:
    """Return cos(β + margin) from cos β, with a finite gradient everywhere; the margin is in radians."""
    sines = (1 - cosines * cosines).clamp(min=MIN_SQUARED_SINE).sqrt()
    return cosines * math.cos(margin) - sines * math.sin(margin)


def contrastive_margin_loss(
    cosines: Tensor,
    y: Tensor,
    *,
    same_task: Tensor,
    competing: Tensor,
    weights: Tensor | None = None,
    scale: float,
    class_margin: float,
    task_margin: float,
    blind_logit: float = -math.inf,
) -> Tensor:
    """Pull samples to their class, push classes and tasks apart, with two angular margins.

        loss = -log( σ_c / (σ_c + σ_t + σ_s) )                                   Eq. dmsl
        σ_c = exp(s cos(β_y + m^c + m^t))                  the sample's own class
        σ_t = Σ_j exp(s cos(β_j + m^t))                    other classes of its task
        σ_s = Σ_j exp(s cos β_j)                           classes of other tasks

    β_j is the angle between the sample's features and what stands for class j: the row of the head in the reading
    `classes`, a mean of stored features in the reading `centroids`. With m^t = 0 it is ArcFace.

    Args:
        cosines: (n, n_classes) cos β.
        y: (n,) the sample's class.
        same_task: (n, n_classes) true where a class belongs to the sample's task.
        competing: (n, n_classes) true where a class takes part; the own class has to.
        weights: (n,) how much each sample counts; by default 1/n.
        scale: s. class_margin, task_margin: m^c and m^t, in radians.
        blind_logit: of a class that takes no part; at 0 it counts as one that is orthogonal.

    Returns:
        The weighted sum, by default the mean. The paper sums; a mean keeps the learning rate free of the batch's size.

    Example:
        >>> cosines, y = torch.tensor([[0.9, 0.1]]), torch.tensor([0])
        >>> everything = torch.ones(1, 2, dtype=torch.bool)
        >>> same = {"same_task": everything, "competing": everything, "scale": 10.0, "task_margin": 0.0}
        >>> plain, with_margin = (contrastive_margin_loss(cosines, y, **same, class_margin=m) for m in (0.0, 0.5))
        >>> bool(plain < with_margin)
        True
    """
    own = y[:, None]
    if task_margin:
        others = torch.where(same_task, widened(cosines, task_margin), cosines)
        logits = others.scatter(1, own, widened(cosines.gather(1, own), class_margin + task_margin))
    elif class_margin:
        logits = cosines.scatter(1, own, widened(cosines.gather(1, own), class_margin))
    else:
        logits = cosines
    logits = (scale * logits).masked_fill(~competing, blind_logit)
    return F.cross_entropy(logits, y) if weights is None else F.cross_entropy(logits, y, reduction="none") @ weights


def paired_margin_loss(
    features: Tensor,
    y: Tensor,
    task: Tensor,
    *,
    is_anchor: Tensor,
    weights: Tensor | None = None,
    scale: float,
    class_margin: float,
    task_margin: float,
) -> Tensor:
    """Return the same loss in the reading `samples`: β is the angle between two samples' features.

        loss_a = -1/|P(a)| Σ_{p ∈ P(a)} log( σ_c / (σ_c + σ_t + σ_s) )

    P(a) are the other samples of a's class and task; σ_c is the pair (a, p), σ_t sums over samples of other classes
    of a's task, σ_s over samples of other tasks. As in ArcFace, the anchor's other positives are not in the sum.

    Args:
        features: (n, d); only directions count. y, task: (n,).
        is_anchor: (n,) true where a row's own loss counts; all rows are contrasted with.
        weights: (n,) how much each row's own loss counts; None for all 1.

    Returns:
        The mean over anchors that have a positive; zero when none has.
    """
    unit = F.normalize(features, dim=1)
    cosines = unit @ unit.T
    same_task = task[:, None] == task
    same_class = same_task & (y[:, None] == y)
    positive = same_class & ~torch.eye(len(y), dtype=torch.bool, device=y.device)

    others = torch.where(same_task, widened(cosines, task_margin), cosines)
    logits = scale * torch.where(positive, widened(cosines, class_margin + task_margin), others)
    log_negatives = logits.masked_fill(same_class, -math.inf).logsumexp(dim=1, keepdim=True)
    pair_loss = F.softplus(log_negatives - logits)  # = -log( e^p / (e^p + negatives) )

    n_positives = positive.sum(dim=1)
    counts = is_anchor & (n_positives > 0)
    row_loss = (pair_loss * positive).sum(dim=1) / n_positives.clamp(min=1)
    if weights is not None:
        row_loss = row_loss * weights
    return (row_loss * counts).sum() / counts.sum().clamp(min=1)
