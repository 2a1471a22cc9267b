from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from holdfast.core.batch import Batch, join
from holdfast.core.options import option
from holdfast.methods._base import ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class ER(ReplayMethod):
    """Experience replay: learn each new batch together with a batch from memory.

    Chaudhry et al., "On Tiny Episodic Memories in Continual Learning", 2019.

    Args:
        weighting: how the two count. `equal` is the paper's sum of the two mean losses; `pooled` is one mean over all
            samples, as in A-GEM's code.
        passes: 2 gives new and replayed samples a forward pass each, so that batch statistics do not mix. 1 takes both
            in one pass, which is faster; on a network without batch statistics it is the same up to rounding. `pooled`
            takes one pass in any case.
    """

    takes_weights: ClassVar[TakesWeights] = "share"

    weighting: Literal["equal", "pooled"] = "equal"
    passes: Literal[1, 2] = option(2, before=2)

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            value = self.step(self.loss(self.recall(batch), batch))
        self.remember(batch)
        return value

    def loss(self, old: Batch, new: Batch) -> Tensor:
        """Return the loss of a step, over new and replayed samples."""
        if not len(old):
            return self.model.loss(new)
        if self.weighting == "pooled":
            return self.model.loss(join([old, new]))
        if self.passes == 2:
            return self.model.loss(old) + self.model.loss(new)
        losses = self.model.losses(join([old, new]))
        return losses @ losses.new_tensor([1 / len(old)] * len(old) + [1 / len(new)] * len(new))
