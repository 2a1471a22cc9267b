"""CML of DRR, written as loops in the paper's symbols."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch.nn.functional as F

from holdfast.core.batch import Batch
from holdfast.methods.drr import DRR


def slow_cml(
    method: DRR, batch: Batch, visible: Callable[[int], set[int]], s: float, m_c: float, m_t: float, blind: float = 0.0
) -> float:
    """Eq. dmsl for each sample against the rows of the head, in loops.

    Args:
        visible: the classes that a sample of a task is contrasted with.
        blind: what each of the other rows adds to the sum.
    """
    features = method.model.features(batch.x).detach()
    rows = method.model.head.weight.detach()
    losses = []
    for z, y, k in zip(features, batch.y.tolist(), batch.task.tolist(), strict=True):
        sigma = {}
        for j in visible(k):
            beta = math.acos(float(F.cosine_similarity(z, rows[j], dim=0)))
            margin = (m_c if j == y else 0) + (m_t if j // 2 == k else 0)  # task k has the classes 2k and 2k + 1
            sigma[j] = math.exp(s * math.cos(beta + margin))
        rest = blind * (len(rows) - len(sigma))
        losses.append(-math.log(sigma[y] / (sum(sigma.values()) + rest)))
    return sum(losses) / len(losses)
