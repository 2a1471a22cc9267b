from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.state import State
from holdfast.methods._base import TakesWeights
from holdfast.methods.wrappers._base import Wrapper

MAX_DELAY = 100_000  # batches; more are more likely a mistake
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(kw_only=True, eq=False)
class Delayed(Wrapper):
    """Learn each batch only when some more have come, as where labels come later than inputs.

    Csaba et al., "Label Delay in Online Continual Learning", NeurIPS 2024; this is their baseline, which learns what
    has labels and makes nothing of the rest. Batches wait here until their turn. The last ones of a stream never get
    labels. Classes count as seen when their samples come.

    Args:
        delay: d, in batches.
    """

    takes_weights: ClassVar[TakesWeights] = "no"  # batches wait without them

    delay: Annotated[int, Field(ge=0, le=MAX_DELAY)] = 0

    waiting: list[tuple[Tensor, Tensor, Tensor]] = field(
        default_factory=list, init=False
    )  # x, y and task, oldest first
    last_loss: FiniteFloat = field(default_factory=float, init=False)  # of the last batch that was learned

    def observe(self, batch: Batch) -> float:
        """Learn the batch of `delay` batches ago, if there is one; return the loss of the last one that was learned."""
        self.waiting = [*self.waiting, (batch.x, batch.y, batch.task)]
        if len(self.waiting) > self.delay:
            oldest, self.waiting = self.waiting[0], self.waiting[1:]
            self.last_loss = super().observe(Batch(*oldest))  # type: ignore[safe-super]
        return self.last_loss

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        for each in self.waiting:
            if len(each) != 3 or not all(isinstance(column, Tensor) for column in each):
                raise ValueError("a batch that waits is not inputs, classes and tasks")
            x, y, task = each
            if not len(x) == len(y) == len(task) or {y.dtype, task.dtype} != {torch.int64} or y.ndim != 1:
                raise ValueError("a batch that waits has not as many inputs as classes and tasks")
            if not self.model.seen.were_seen(y, task):
                raise ValueError("a class is waiting to be learned, but was never seen")
        if len(self.waiting) > self.delay:
            raise ValueError(f"{len(self.waiting)} batches wait, but the delay is {self.delay}")
