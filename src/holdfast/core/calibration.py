"""Probabilities that mean what they say: a temperature learned from the stream, and the error of probabilities."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.state import Count, Stateful

COLDEST, HOTTEST = 0.01, 100.0


class Temperature(Stateful):
    """One number by which scores are divided before their softmax, learned on samples that were not learned yet.

        p = softmax(s / T)

    Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, fit T once on held-out samples. In a stream
    every new sample is held out until it is learned. The negative log-likelihood is convex in β = 1 / T, so each batch
    is one damped Newton step:

        H ← ρ^n H + Σ_i Var_p(s_i),    β ← β - Σ_i (E_p(s_i) - s_i,y) / H

    Samples of a class that does not compete are passed over.

    Example:
        >>> temperature = Temperature()
        >>> scores, y = torch.tensor([[9.0, 0.0]]).repeat(4, 1), torch.tensor([0, 0, 0, 1])  # right in 3 of 4
        >>> for _ in range(200):
        ...     temperature.update(scores, y)
        >>> [round(p, 2) for p in temperature.probabilities(scores)[0].tolist()]
        [0.75, 0.25]
    """

    FADING = 0.995  # ρ, of each sample
    FIRST = 10.0  # samples that the first guess, T = 1, counts for

    inverse: Annotated[float, Field(ge=1 / HOTTEST, le=1 / COLDEST)]
    curvature: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    n_seen: Count

    def __init__(self) -> None:
        self.inverse = 1.0  # β
        self.curvature = 0.0  # H
        self.n_seen = 0

    @property
    def value(self) -> float:
        """T; above 1 the scores were too sure."""
        return 1 / self.inverse

    @torch.no_grad()
    def update(self, scores: Tensor, y: Tensor) -> None:
        """Take in scores (n, n_classes) of samples before they are learned, and their classes (n,)."""
        inside = y < scores.shape[1]
        scores, y = scores[inside].double(), y[inside]
        fits = torch.isfinite(scores.gather(1, y[:, None])[:, 0])
        scores, y = scores[fits], y[fits]
        if not len(y):
            return
        competing = torch.isfinite(scores)
        # A constant taken from all scores of a row changes no probability, and keeps numbers small.
        shifted = torch.where(competing, scores - scores.amax(dim=1, keepdim=True), 0.0)
        p = torch.where(competing, self.inverse * shifted, -torch.inf).softmax(dim=1)
        mean = (p * shifted).sum(dim=1)
        variance = (p * shifted.square()).sum(dim=1) - mean.square()
        slope = float((mean - shifted.gather(1, y[:, None])[:, 0]).sum())
        if not self.n_seen:
            self.curvature = self.FIRST * float(variance.mean())
        self.n_seen += len(y)
        self.curvature = self.FADING ** len(y) * self.curvature + max(float(variance.sum()), 0.0)
        # A saturated softmax has no curvature, and Newton's step no bound.
        step = slope / max(self.curvature, 1e-12)
        self.inverse = min(max(self.inverse - step, self.inverse / 2, 1 / HOTTEST), self.inverse * 2, 1 / COLDEST)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return (n, n_classes) probabilities of scores; 0 for a class that does not compete."""
        return (scores.double() * self.inverse).softmax(dim=1).to(scores.dtype)


def expected_calibration_error(probabilities: Tensor, y: Tensor, *, bins: int = 15) -> float:
    """Return the mean gap between confidence and accuracy.

        ECE = Σ_b n_b / n · |accuracy_b - confidence_b|

    Naeini et al., "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015. A sample's confidence is
    its largest probability; bins have equal widths, the upper edge included.

    Args:
        probabilities: (n, n_classes).
        y: (n,) the true columns.

    Example:
        >>> round(expected_calibration_error(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1])), 3)
        0.4
    """
    if not len(y) or bins < 1:
        raise ValueError(f"{len(y)} samples in {bins} bins: give at least one sample and one bin")
    confidence, said = probabilities.double().max(dim=1)
    right = (said == y).double()
    place = (confidence * bins).ceil().long().sub_(1).clamp_(0, bins - 1)
    gap = torch.zeros(bins, dtype=torch.float64, device=y.device).index_add_(0, place, right - confidence)
    return float(gap.abs().sum() / len(y))
