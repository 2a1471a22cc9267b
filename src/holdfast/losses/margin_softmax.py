"""The margin softmax of MDMT-R."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from holdfast.losses.contrastive_margin import widened


def margin_softmax_loss(
    cosines: Tensor,
    y: Tensor,
    *,
    visible: Tensor,
    scale: float,
    class_margin: float,
    task_margin: float,
    blind_logit: float,
) -> Tensor:
    """Tell a sample's class from those it can see, with one margin for all of these and one more for its own.

        loss = -log( e^(s l_y) / Σ_j e^(s l_j) )
        l_j = cos(θ_j + m1)                                 classes that it sees
        l_y = cos(θ_y + m1) + cos(θ_y + m2) - cos θ_y       its own class: the margins add up in the cosine
        l_j = 0, or minus infinity                          classes that it does not see

    Args:
        cosines: (n, n_classes) cos θ, of the sample's features and the row of each class.
        y: (n,) the sample's class.
        visible: (n, n_classes) V, true where a sample sees a class; its own it has to.
        scale: s. task_margin, class_margin: m1 and m2, in radians.
        blind_logit: l_j of a class that is not seen. At 0 each counts as one that is orthogonal; minus infinity
            leaves it out.

    Returns:
        The mean over samples.

    Example:
        >>> import torch
        >>> cosines, y = torch.tensor([[0.9, 0.1]]), torch.tensor([0])
        >>> visible = torch.ones(1, 2, dtype=torch.bool)
        >>> same = {"visible": visible, "scale": 10.0, "task_margin": 0.0, "blind_logit": 0.0}
        >>> plain, with_margin = (margin_softmax_loss(cosines, y, **same, class_margin=m) for m in (0.0, 0.5))
        >>> bool(plain < with_margin)
        True
    """
    logits = widened(cosines, task_margin) if task_margin else cosines
    if class_margin:
        own = y[:, None]
        own_cosine = cosines.gather(1, own)
        logits = logits.scatter_add(1, own, widened(own_cosine, class_margin) - own_cosine)
    return F.cross_entropy(scale * logits.masked_fill(~visible, blind_logit), y)
