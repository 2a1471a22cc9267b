"""The penalty of methods that hold weights where they were, by how much each matters."""

from __future__ import annotations

import torch
from torch import Tensor


def importance_penalty(
    weights: list[Tensor], anchor: list[Tensor], importance: list[Tensor], *, strength: float
) -> tuple[Tensor, list[Tensor]]:
    """Pull each weight back to where it was, the harder the more it matters.

        penalty = λ Σ_k Ω_k (θ_k - θ*_k)²,    its gradient 2 λ Ω_k (θ_k - θ*_k)

    Both come in closed form, since the importance is measured with the gradient of the task's loss alone: a method
    takes that one first and then adds this one. There is no factor ½.

    Args:
        weights, anchor, importance: θ, θ* and Ω, one tensor a parameter.
        strength: λ.

    Returns:
        The penalty, and its gradient for each parameter; both without a graph.

    Example:
        >>> penalty, gradient = importance_penalty(
        ...     [torch.tensor([3.0])], [torch.tensor([1.0])], [torch.tensor([0.5])], strength=10.0
        ... )
        >>> penalty, gradient
        (tensor(20.), [tensor([20.])])
    """
    with torch.no_grad():
        moved = torch._foreach_sub(weights, anchor)
        gradient = torch._foreach_mul(importance, moved)
        torch._foreach_mul_(gradient, 2 * strength)
        parts = torch._foreach_mul(gradient, moved)
        return torch.stack([part.sum() for part in parts]).sum() / 2, list(gradient)
