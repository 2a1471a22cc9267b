"""The loss of Proxy-based Contrastive Replay."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def proxy_contrastive_loss(scores: Tensor, y: Tensor, *, competing: Tensor) -> Tensor:
    """Pull samples to the proxy of their class, push them from the proxies of the other samples.

        loss_i = -1/|P(i)| Σ_{p ∈ P(i)} log( exp(s(i, y_p)) / Σ_k exp(s(i, y_k)) )

    k runs over all samples of the joint batch, P(i) over those of i's class, i itself included; s(i, c) is the score
    of sample i for the proxy of class c. All of P(i) share one proxy and each class c comes up n_c times, so

        loss_i = log Σ_c n_c exp(s(i, c)) - s(i, y_i)

    Args:
        scores: (n, n_classes) s. y: (n,) the class of each sample.
        competing: (n, n_classes) true where a class competes for a sample; its own class has to.

    Returns:
        The mean over samples.

    Example:
        >>> scores, y = torch.tensor([[2.0, 0.0, 9.0], [0.0, 2.0, 9.0]]), torch.tensor([0, 1])
        >>> proxy_contrastive_loss(scores, y, competing=torch.ones(2, 3, dtype=torch.bool))  # class 2 has no sample
        tensor(0.1269)
    """
    counts = torch.bincount(y, minlength=scores.shape[1])
    counted = scores + counts.to(scores.dtype).log()  # -inf for a class without samples
    total = counted.masked_fill(~competing, -math.inf).logsumexp(dim=1)
    return (total - scores.gather(1, y[:, None])[:, 0]).mean()
