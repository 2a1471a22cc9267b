from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.methods._anchored import AnchoredMethod, copies, zeros
from holdfast.methods._base import TakesWeights


@dataclass(kw_only=True, eq=False)
class SI(AnchoredMethod):
    """Synaptic intelligence: hold weights by how much their way through the task lowered its loss.

    Zenke, Poole and Ganguli, "Continual Learning Through Synaptic Intelligence", ICML 2017. Weights whose way raised
    the loss count as unimportant, as in Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019.

    Args:
        strength: λ (the paper's c), 0.1 on Split CIFAR-100. Ω has no bound and grows from task to task: where the loss
            runs away, lower λ or the learning rate.
        damping: ξ, which keeps the importance of weights that hardly moved finite.
    """

    takes_weights: ClassVar[TakesWeights] = "share"
    replaced: ClassVar[frozenset[str]] = AnchoredMethod.replaced | {"path"}

    strength: Annotated[float, Field(ge=0)] = 0.1
    damping: Annotated[float, Field(gt=0)] = 1e-3

    path: list[Tensor] = field(init=False)  # ω

    def __post_init__(self) -> None:
        super().__post_init__()
        self.path = zeros(self.anchor)

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            before = copies(self.weights())
            value, gradient = self.anchored_step(self.model.loss(batch))
            moved = torch._foreach_sub(self.weights(), before)
            self.path = list(torch._foreach_addcmul(self.path, gradient, moved, value=-1))  # ω ← ω - g Δθ
        self.end_batch()
        return value

    def take_importance(self) -> list[Tensor]:
        path, self.path = self.path, zeros(self.path)
        moved = torch._foreach_sub(self.weights(), self.anchor)
        return [
            before + (omega / (self.damping + delta**2)).relu()
            for before, omega, delta in zip(self.importance, path, moved, strict=True)
        ]
