from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from holdfast.core.batch import Batch
from holdfast.methods._base import MAX_STEPS
from holdfast.methods.wrappers._base import Augmentation, ReplayWrapper, augmented

SEED = 4  # beside the seed of the head, so that views are not drawn from the same numbers


@dataclass(kw_only=True, eq=False)
class RAR(ReplayWrapper):
    """Repeated augmented rehearsal: learn each batch several times, beside other replayed samples and in other views.

    Zhang et al., "A Simple but Strong Baseline for Online Continual Learning: Repeated Augmented Rehearsal", NeurIPS
    2022. Memory gets each sample once, as it came. A step costs as much as before, so that a batch costs `repeats`
    times as much.

    Args:
        repeats: how often each batch is learned; 1 is augmentation alone.
        augmentation: of new and of replayed samples, drawn anew each time.
    """

    derived: ClassVar[frozenset[str]] = ReplayWrapper.derived | {"_is_last"}
    needs_batches: ClassVar[bool] = True

    repeats: Annotated[int, Field(ge=1, le=MAX_STEPS)] = 10
    augmentation: Augmentation = "randaugment"

    augmentation_rng: torch.Generator = field(init=False)
    _is_last: bool = field(default=True, init=False)  # of the repeats: the one after which the batch is remembered

    def __post_init__(self) -> None:
        super().__post_init__()
        self.augmentation_rng = torch.Generator().manual_seed(self.model.head.rng.initial_seed() ^ SEED)

    @property
    def steps_a_batch(self) -> int:
        return self.repeats * super().steps_a_batch

    def observe(self, batch: Batch) -> float:
        try:
            with self.storing(batch):
                for i in range(self.repeats):
                    self._is_last = i + 1 == self.repeats
                    view = augmented(batch.x, self.augmentation, self.augmentation_rng)
                    value = super().observe(replace(batch, x=view))  # type: ignore[safe-super]
        finally:
            self._is_last = True
        return value

    def recall(self, batch: Batch) -> Batch:
        old = super().recall(batch)
        return replace(old, x=augmented(old.x, self.augmentation, self.augmentation_rng)) if len(old) else old

    def remember(self, batch: Batch) -> None:
        if self._is_last:
            super().remember(batch)
