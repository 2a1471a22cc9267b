from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from holdfast.core.batch import Batch
from holdfast.core.gradients import step_gec
from holdfast.methods._base import ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class GEC(ReplayMethod):
    """GEC: add as much of the old gradient as lowers the loss of replayed samples, the more it exceeds a threshold.

    Lai et al., "Gradient-Guided Epsilon Constraint Method for Online Continual Learning", NeurIPS 2025.

        v = g + λ r,    λ = max(0, (α (l_r - ε) - ⟨r, g⟩) / (|r|² + δ))

    l_r is the loss of replayed samples, r its gradient, g that of the new ones. While l_r stays below ε, old samples
    may even be forgotten a little. A-GEM always forbids that, and never asks for more.

    The authors calibrate ε at the boundaries of tasks. Here ε is the exponential moving average (EMA) of l_r, which
    needs no boundary.

    Args:
        gain: α, how fast an excess is worked off.
        epsilon: ε; None takes the EMA of l_r.
        decay: of that EMA.
        damping: δ, which bounds the step where r is short; the authors' value is not known here.
    """

    takes_weights: ClassVar[TakesWeights] = "share"
    one_loss: ClassVar[bool] = False

    gain: Annotated[float, Field(ge=0)] = 1.0
    epsilon: Annotated[float, Field(ge=0)] | None = None
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.99
    damping: Annotated[float, Field(ge=0)] = 1e-3

    old_loss: float | None = field(default_factory=lambda: None, init=False)  # EMA of l_r, once replayed

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            if not len(old):
                value = self.step(self.model.loss(batch))
                continue
            old_loss = self.model.loss(old)
            reference = self.gradient(old_loss)
            loss = self.model.loss(batch)
            decrease = self.gain * (old_loss.item() - self.threshold(old_loss.item()))
            self.follow(step_gec(self.gradient(loss), reference, decrease=decrease, damping=self.damping))
            value = loss.item()
        self.remember(batch)
        return value

    def threshold(self, old_loss: float) -> float:
        """Return ε, and let the EMA take in the loss of the samples replayed now."""
        before = old_loss if self.old_loss is None else self.old_loss
        self.old_loss = self.decay * before + (1 - self.decay) * old_loss
        return before if self.epsilon is None else self.epsilon
