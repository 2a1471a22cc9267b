from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.core.batch import Batch, join
from holdfast.methods._base import ReplayMethod


@dataclass(kw_only=True, eq=False)
class ER(ReplayMethod):
    """Experience replay: learn each new batch together with a batch from memory.

    Chaudhry et al., "On Tiny Episodic Memories in Continual Learning", 2019.

    `weighting` says how the two count. `equal`, the paper's sum of the two mean losses, each over its own forward
    pass so that batch statistics do not mix; `pooled`, one pass over all samples and one mean, as in A-GEM's code.
    """

    weighting: Literal["equal", "pooled"] = "equal"

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            if not len(old):
                loss = self.model.loss(batch)
            elif self.weighting == "equal":
                loss = self.model.loss(old) + self.model.loss(batch)
            else:
                loss = self.model.loss(join([old, batch]))
            value = self.step(loss)
        self.remember(batch)
        return value
