from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field

from holdfast.core.average import StoredWeights
from holdfast.core.batch import Batch
from holdfast.core.optimizers import like_optimizer
from holdfast.methods._base import MAX_STEPS, Method, finite
from holdfast.methods.wrappers._base import ReplayWrapper

SEED = 3  # beside the seed of the memory, so that the order is not drawn from the same numbers


@dataclass(kw_only=True, eq=False)
class Review(ReplayWrapper):
    """Review trick: before predicting, a copy of the model learns all stored samples once more, at a smaller rate.

    Mai et al., "Online Continual Learning in Image Classification: An Empirical Survey", Neurocomputing 2022. There the
    model itself is changed, at the end of each task. Here only predictions are. The copy is made when it is first
    needed after a batch, so no end of a task has to be known. Predicting changes nothing that learns.

    Args:
        epochs: passes over memory, in batches of `replay_size`.
        share: of the learning rate.
    """

    derived: ClassVar[frozenset[str]] = ReplayWrapper.derived | {"_reviewed", "_learns"}

    epochs: Annotated[int, Field(ge=1, le=MAX_STEPS)] = 1
    share: Annotated[float, Field(gt=0, le=1)] = 0.1

    _reviewed: StoredWeights | None = field(default=None, init=False)  # until the next batch
    _learns: bool = field(default=False, init=False)  # what the method asks of the model then is not reviewed

    @classmethod
    def refusal(cls, method: type[Method]) -> str:
        if reason := super().refusal(method):
            return reason
        return "" if method.learns_head else "it does not learn the head, which the review learns with"

    def observe(self, batch: Batch) -> float:
        with self._learning():
            return super().observe(batch)  # type: ignore[safe-super]

    def end_task(self, task: int) -> None:
        with self._learning():
            super().end_task(task)

    @contextmanager
    def _learning(self) -> Iterator[None]:
        self._reviewed, self._learns = None, True
        try:
            yield
        finally:
            self._learns = False

    def copy_for_predicting(self) -> Self:
        twin = super().copy_for_predicting()
        twin._learns = True  # its weights are reviewed already
        return twin

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Context manager: the model predicts inside, with the weights that it has after the review."""
        with super().settled():
            if self._learns or not len(self.memory):
                yield
                return
            if self._reviewed is None:
                self._reviewed = self.review()
            with self._reviewed.inside(self.model):
                yield

    def review(self) -> StoredWeights:
        """Return the weights that the model has after learning what is stored; the model stays as it is."""
        reviewed, counts = StoredWeights(), [b for b in self.model.buffers() if not b.is_floating_point()]
        kept = [count.clone() for count in counts]
        reviewed.take(self.model)
        rng = torch.Generator().manual_seed(self.memory.rng.initial_seed() ^ SEED)
        with reviewed.inside(self.model), torch.enable_grad():
            parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            gradients = [parameter.grad for parameter in parameters]
            optimizer = like_optimizer(self.optimizer, parameters, share=self.share)
            for _ in range(self.epochs):
                order = torch.randperm(len(self.memory), generator=rng)
                for slots in torch.split(order, max(self.replay_size, 1)):
                    loss = self.model.loss(self.memory[slots])
                    finite(loss)
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
        for count, before in zip(counts, kept, strict=True):
            count.copy_(before)
        return reviewed
