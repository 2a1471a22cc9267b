"""Gradients as flat vectors, and how that of a new batch gives way to those of old samples.

Everywhere g is the gradient of the new batch and r that of old samples, both (n,): a step along -g lowers the loss of
the new batch, and raises that of the old samples where ⟨g, r⟩ < 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
PARALLEL = 1e-10  # two gradients whose angle has a squared sine below this span no plane


def flat_gradient(loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return (n,), the gradient of `loss` in all numbers of `parameters`; zero where it does not depend on them.

    Example:
        >>> weights = [torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
        >>> flat_gradient((3 * weights[0]).sum(), weights)
        tensor([3., 3., 0.])
    """
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def assign_gradient(gradient: Tensor, parameters: Sequence[Tensor]) -> None:
    """Give each of `parameters` its part of a flat gradient (n,), for an optimiser to follow.

    Example:
        >>> weights = [torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
        >>> assign_gradient(torch.tensor([1.0, 2.0, 3.0]), weights)
        >>> weights[1].grad
        tensor([3.])
    """
    parts = torch.split(gradient, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view(parameter.shape)


def project_agem(gradient: Tensor, reference: Tensor) -> Tensor:
    """Return the vector nearest to g with ⟨g~, r⟩ ≥ 0 (A-GEM).

    g~ = g - ⟨g, r⟩/⟨r, r⟩ r where ⟨g, r⟩ < 0, else g.

    Example:
        >>> project_agem(torch.tensor([1.0, -2.0]), torch.tensor([0.0, 1.0]))
        tensor([1., 0.])
    """
    along, square = float(gradient @ reference), float(reference @ reference)
    if along >= 0 or _vanishes(square, gradient):
        return gradient
    return gradient - (along / square) * reference


def project_soft_gem(gradient: Tensor, reference: Tensor, *, epsilon: float) -> Tensor:
    """Return the vector nearest to g with ⟨g~, r⟩ ≥ ε |g| |r| (ε-SOFT-GEM).

    g~ = g - (⟨g, r^⟩ - ε |g|) r^ where ⟨g, r^⟩ < ε |g|, else g, with r^ = r/|r|; ε = 0 is A-GEM.

    Example:
        >>> project_soft_gem(torch.tensor([4.0, -3.0]), torch.tensor([0.0, 1.0]), epsilon=0.2)
        tensor([4., 1.])
    """
    along, square = float(gradient @ reference), float(reference @ reference)
    if _vanishes(square, gradient):
        return gradient
    wanted = epsilon * math.sqrt(float(gradient @ gradient) * square)
    return gradient if along >= wanted else gradient - ((along - wanted) / square) * reference


def step_gec(gradient: Tensor, reference: Tensor, *, decrease: float, damping: float = 0.0) -> Tensor:
    """Return the vector nearest to g with ⟨g~, r⟩ ≥ φ, if δ = 0 (GEC).

    g~ = g + λ r with λ = max(0, (φ - ⟨g, r⟩) / (|r|² + δ)); φ = δ = 0 is A-GEM.

    Args:
        decrease: φ, how much of the loss of old samples a step of length one takes away; below 0 it may rise.
        damping: δ, which bounds λ where r is short.
    """
    along, square = float(gradient @ reference), float(reference @ reference)
    if along >= decrease or _vanishes(square, gradient):
        return gradient
    return gradient + ((decrease - along) / (square + damping)) * reference


def rotate_mega2(gradient: Tensor, reference: Tensor, *, new_loss: float, old_loss: float) -> Tensor:
    """Turn g by an angle β towards r and keep its length; the larger the old loss, the more (MEGA-II).

        β = argmax_{0 ≤ β ≤ π/2} l_t cos β + l_ref cos(φ - β) = atan2(l_ref sin φ, l_t + l_ref cos φ)

    and no more than π/2; φ is the angle between g and r, l_t = `new_loss`, l_ref = `old_loss`. Where g and r are
    parallel or one of them is zero there is no plane to turn in, and g stays as it is.
    """
    g_square, r_square = float(gradient @ gradient), float(reference @ reference)
    if _vanishes(g_square, gradient) or _vanishes(r_square, gradient):
        return gradient
    along = float(gradient @ reference)
    across = reference - (along / g_square) * gradient  # the part of r that is orthogonal to g
    across_square = float(across @ across)
    # The paper's code asks whether |g|² |r|² sin²φ is small; that would leave old samples out where gradients are.
    if across_square <= PARALLEL * r_square:
        return gradient
    sine, cosine = math.sqrt(across_square / r_square), along / math.sqrt(g_square * r_square)
    beta = min(math.atan2(old_loss * sine, new_loss + old_loss * cosine), math.pi / 2)
    return math.cos(beta) * gradient + (math.sin(beta) * math.sqrt(g_square / across_square)) * across


def project_gem(gradient: Tensor, references: Tensor, *, memory_strength: float = 0.0, ridge: float = 0.0) -> Tensor:
    """Return the vector nearest to g with ⟨g~, r_k⟩ ≥ 0 for all tasks k; g itself where it has that (GEM).

        v = argmin_{v ≥ γ} ½ vᵀ (G Gᵀ + ridge I) v + (G g)ᵀ v,   g~ = g + Gᵀ v

    Args:
        references: (k, n) G, a gradient of old samples a row.
        memory_strength: γ; above 0 it leans further towards the old tasks than they need.
        ridge: added to the diagonal; above 0 a constraint gives way by ridge · v_k.

    Example:
        >>> project_gem(torch.tensor([1.0, -2.0]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])).round(decimals=6)
        tensor([1., 0.])
    """
    along = references @ gradient
    if bool((along >= 0).all()):
        return gradient
    # A problem of as many numbers as there are tasks: solved on the CPU, in double precision.
    quadratic = (references @ references.T).double().cpu().numpy() + ridge * np.eye(len(references))
    linear = along.double().cpu().numpy() + memory_strength * quadratic.sum(axis=1)  # of v - γ ≥ 0
    precision = 10 * torch.finfo(gradient.dtype).eps
    dual = memory_strength + nonnegative_minimum(quadratic, linear, precision=precision)
    return gradient + torch.from_numpy(dual).to(gradient) @ references


def nonnegative_minimum(quadratic: Array, linear: Array, *, precision: float = 1e-14) -> Array:
    """Return (k,) argmin_{v ≥ 0} ½ vᵀ P v + qᵀ v, by the active set of Lawson and Hanson (1974, chapter 23).

    This is non-negative least squares |A v - b|² given P = AᵀA and q = -Aᵀb.

    Args:
        quadratic: (k, k) P, positive semi-definite; it may be singular. linear: (k,) q, in the range of P.
        precision: of the two, relative to their largest numbers.
    """
    scale = np.sqrt(quadratic.diagonal())
    scale[scale == 0] = 1  # all of such a row is zero, and so stays its v
    p, q = quadratic / np.outer(scale, scale), linear / scale
    v, free = np.zeros_like(q), np.zeros(len(q), dtype=bool)
    value = 0.0
    while not free.all():
        gain = np.where(free, -np.inf, -(p @ v + q))  # of letting a number leave zero
        if gain.max() <= precision * np.abs(q).max():
            break
        free[gain.argmax()] = True
        found = _minimum_with(free, p, q, start=v, precision=precision)
        new_value = found @ (p @ found / 2 + q)
        if not new_value < value:  # what is left to gain is rounding; so no set comes twice, and this ends
            break
        v, value = found, new_value
    return v / scale


def _minimum_with(free: Array, p: Array, q: Array, *, start: Array, precision: float) -> Array:
    """Return the minimum over the `free` numbers; a number that would fall below zero leaves them on the way."""
    while True:
        goal = np.zeros_like(start)
        goal[free] = np.linalg.lstsq(p[np.ix_(free, free)], -q[free], rcond=precision)[0]
        blocked = free & (goal <= 0)
        if not blocked.any():
            return goal
        shares = np.full_like(start, np.inf)  # of the way to the goal until a number is zero
        shares[blocked] = start[blocked] / np.maximum(start[blocked] - goal[blocked], np.finfo(float).tiny)
        first = shares.argmin()
        start = np.maximum(start + shares[first] * (goal - start), 0)
        start[first], free[first] = 0, False


def _vanishes(square: float, like: Tensor) -> bool:
    """Return True if a vector with this squared length, in the dtype of `like`, is too short for a direction."""
    return square < torch.finfo(like.dtype).tiny
