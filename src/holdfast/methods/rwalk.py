from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.state import Count
from holdfast.methods._anchored import AnchoredMethod, copies, min_max, zeros
from holdfast.methods._base import TakesWeights


@dataclass(kw_only=True, eq=False)
class RWalk(AnchoredMethod):
    """Riemannian walk: hold weights by their Fisher information and by how far their way lowered the loss.

    Chaudhry et al., "Riemannian Walk for Incremental Learning: Understanding Forgetting and Intransigence", ECCV 2018,
    with the updates of Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019. The way is measured in
    pieces of W steps, each by the Fisher information before it; both parts are scaled to [0, 1] over all weights.

    Args:
        strength: λ, 1 on Split CIFAR-100.
        fisher_every: W (the paper's Δt), the steps of one piece. Steps left over at the end of a task count for the
            next, so with fewer than W steps in all nothing is held.
        fisher_rate: a (the paper's α), how much the newest Fisher information counts in the running mean.
        damping: ξ (the paper's ε), which keeps the score of weights that hardly moved finite.
    """

    takes_weights: ClassVar[TakesWeights] = "share"
    places: ClassVar[frozenset[str]] = frozenset({"anchor", "piece_began"})

    replaced: ClassVar[frozenset[str]] = AnchoredMethod.replaced | {
        "fisher",
        "squares",
        "path",
        "piece_began",
        "task_score",
        "score",
    }

    strength: Annotated[float, Field(ge=0)] = 1.0
    fisher_every: Annotated[int, Field(ge=1)] = 50
    fisher_rate: Annotated[float, Field(gt=0, le=1)] = 0.9
    damping: Annotated[float, Field(gt=0)] = 1e-3

    fisher: list[Tensor] = field(init=False)  # F̄
    squares: list[Tensor] = field(init=False)  # the sum of squared gradients in this piece
    path: list[Tensor] = field(init=False)  # ω in this piece
    piece_began: list[Tensor] = field(init=False)  # θ then
    n_steps: Count = field(default_factory=int, init=False)  # since then
    task_score: list[Tensor] = field(init=False)  # s of the pieces of this task
    score: list[Tensor] = field(init=False)  # of all tasks that ended

    def __post_init__(self) -> None:
        super().__post_init__()
        self.piece_began = copies(self.anchor)
        for name in ("fisher", "squares", "path", "task_score", "score"):
            setattr(self, name, zeros(self.anchor))

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            before = copies(self.weights())
            value, gradient = self.anchored_step(self.model.loss(batch))
            moved = torch._foreach_sub(self.weights(), before)
            self.path = list(torch._foreach_addcmul(self.path, gradient, moved, value=-1))  # ω ← ω - g Δθ
            self.squares = list(torch._foreach_addcmul(self.squares, gradient, gradient))
            self.n_steps += 1
            if self.n_steps == self.fisher_every:
                self.end_piece()
        self.end_batch()
        return value

    def end_piece(self) -> None:
        moved = torch._foreach_sub(self.weights(), self.piece_began)
        self.task_score = [
            score + (omega / (self.damping + fisher * delta**2)).relu()
            for score, omega, fisher, delta in zip(self.task_score, self.path, self.fisher, moved, strict=True)
        ]
        mean = torch._foreach_div(self.squares, self.fisher_every)
        self.fisher = list(torch._foreach_lerp(self.fisher, mean, self.fisher_rate))  # F̄ ← (1-a) F̄ + a Σg²/W
        self.piece_began, self.n_steps = copies(self.weights()), 0
        self.path, self.squares = zeros(self.path), zeros(self.squares)

    def take_importance(self) -> list[Tensor]:
        # score ← score + (score + s)/2, where the first task's s is doubled so that halving does not hurt it. Kept is
        # the score over 1.5 to the number of tasks before: scaled to [0, 1] it is the same, and it never overflows.
        weight = 0.5 * 1.5**-self.n_consolidated if self.n_consolidated else 1.0
        self.score = list(torch._foreach_add(self.score, self.task_score, alpha=weight))
        self.task_score = zeros(self.task_score)
        return list(torch._foreach_add(min_max(self.fisher), min_max(self.score)))
