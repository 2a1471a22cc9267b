from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from holdfast.core.batch import Batch
from holdfast.core.state import Count
from holdfast.methods.wrappers._base import Wrapper

MAX_COST = 1e6  # batches that pass while one is learned; more are more likely a mistake
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(kw_only=True, eq=False)
class RealTime(Wrapper):
    """Let the stream not wait: while a batch is learned, others pass, and these are only predicted.

    Ghunaim et al., "Real-Time Evaluation in Online Continual Learning: A New Hope", CVPR 2023. A method of relative
    cost c learns every c-th batch; if c is no whole number, it does so on average. `--real-time` counts the operations
    of a batch for c. The classes of a batch that passes count as seen.

    Args:
        cost: c, in batches of the stream; up to 1 every batch is learned.
    """

    cost: Annotated[float, Field(gt=0, le=MAX_COST)] = 1.0

    n_arrived: Count = field(default_factory=int, init=False)  # batches, learned or not
    last_loss: FiniteFloat = field(default_factory=float, init=False)  # of the last batch that was learned

    def observe(self, batch: Batch) -> float:
        """Learn a batch if the one before is finished; return the loss of the last one that was learned."""
        number = self.n_arrived
        self.n_arrived += 1
        if number and math.floor(number / self.cost) == math.floor((number - 1) / self.cost):
            return self.last_loss
        self.last_loss = super().observe(batch)  # type: ignore[safe-super]
        return self.last_loss
