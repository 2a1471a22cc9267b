"""Operations of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from holdfast.core.state import Count
from holdfast.experiments.flops import counting
from holdfast.experiments.probes._base import Plan, Probe

LEAST_EVERY = 7  # batches from one count to the next, in streams that are short
N_COUNTS = 50  # of a stream, about


class CostPart(BaseModel):
    """Floating-point operations of a batch that is learned.

    Attributes:
        counted: batches that were counted.
        flops: of all of them together.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    counted: int = Field(ge=0)
    flops: int = Field(ge=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.flops and not self.counted:
            raise ValueError(f"{self.flops} operations of no batch")
        return self

    @property
    def flops_per_batch(self) -> float | None:
        return self.flops / self.counted if self.counted else None


@dataclass(kw_only=True, eq=False)
class Cost(Probe):
    """Count the floating-point operations of some fifty batches, evenly over the stream.

    See `experiments.flops` for what counts. Every few batches means a number without small divisors, so that what a
    method does every ten batches is met as often as it comes. What happens at the end of a task is not counted.
    """

    follows: ClassVar = "nothing"

    counted: Count = field(default=0, init=False)
    flops: Count = field(default=0, init=False)
    every: Count = field(default=1, init=False)

    def begin(self, plan: Plan) -> None:
        super().begin(plan)
        n_steps = sum(task.n_steps(plan.experiment.batch_size) for task in plan.stream)
        self.every = _without_small_divisors(max(LEAST_EVERY, n_steps // N_COUNTS))

    @contextmanager
    def during_step(self, step: int) -> Iterator[None]:
        """Context manager: the operations inside count if it is the turn of this step."""
        if step % self.every != self.every // 2:
            yield
            return
        with counting() as count:
            yield
        self.counted += 1
        self.flops += count.flops

    def result(self) -> dict[str, Any]:
        return {"counted": self.counted, "flops": self.flops}


def _without_small_divisors(n: int) -> int:
    """Return the next number from n on that 2, 3 and 5 do not divide."""
    while not (n % 2 and n % 3 and n % 5):
        n += 1
    return n
