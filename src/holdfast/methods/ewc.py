from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.state import Count
from holdfast.methods._anchored import AnchoredMethod, min_max, zeros
from holdfast.methods._base import TakesWeights


@dataclass(kw_only=True, eq=False)
class EWC(AnchoredMethod):
    """Elastic weight consolidation: hold weights by the Fisher information of what was learned.

    Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", PNAS 2017; online, as compared with in
    Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019: one running Fisher information of squared
    mini-batch gradients, scaled to [0, 1] over all weights when a task ends.

    Args:
        strength: λ, 10 on Split CIFAR-100. Keep lr · λ well below 1, or the weights run away.
        fisher_every: W, the steps whose squared gradients make one Fisher information. Steps left over at the end of
            a task count for the next, so with fewer than W steps in all nothing is held.
        fisher_rate: a, how much the newest one counts in the running mean.
    """

    takes_weights: ClassVar[TakesWeights] = "share"
    replaced: ClassVar[frozenset[str]] = AnchoredMethod.replaced | {"fisher", "squares"}

    strength: Annotated[float, Field(ge=0)] = 10.0
    fisher_every: Annotated[int, Field(ge=1)] = 50
    fisher_rate: Annotated[float, Field(gt=0, le=1)] = 0.9

    fisher: list[Tensor] = field(init=False)  # F̄
    squares: list[Tensor] = field(init=False)  # the sum of squared gradients over
    n_squares: Count = field(default_factory=int, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.fisher, self.squares = zeros(self.anchor), zeros(self.anchor)

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            value, gradient = self.anchored_step(self.model.loss(batch))
            self.squares = list(torch._foreach_addcmul(self.squares, gradient, gradient))
            self.n_squares += 1
            if self.n_squares == self.fisher_every:
                mean = torch._foreach_div(self.squares, self.fisher_every)
                self.fisher = list(torch._foreach_lerp(self.fisher, mean, self.fisher_rate))  # F̄ ← (1-a) F̄ + a Σg²/W
                self.squares = zeros(self.squares)
                self.n_squares = 0
        self.end_batch()
        return value

    def take_importance(self) -> list[Tensor]:
        return min_max(self.fisher)
