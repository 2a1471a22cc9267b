from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from holdfast.core.batch import Batch, join
from holdfast.core.gradients import project_gem
from holdfast.methods._base import MAX_REPLAY, ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class GEM(ReplayMethod):
    """GEM: follow the nearest gradient to the new one along which the loss of no old task rises.

    Lopez-Paz and Ranzato, "Gradient Episodic Memory for Continual Learning", NeurIPS 2017.

    It takes one more gradient a step for every old task. Its own way to recall stands in for the retrieval.

    Args:
        replay_size: how many stored samples of each old task a step takes at most.
        memory_strength: γ, how far to lean towards the old tasks beyond what they need.
        ridge: added to the diagonal of the problem that is solved.
    """

    takes_weights: ClassVar[TakesWeights] = "share"
    selects: ClassVar[str] = "ring"
    one_loss: ClassVar[bool] = False

    replay_size: Annotated[int, Field(ge=0, le=MAX_REPLAY)] = 256
    memory_strength: Annotated[float, Field(ge=0)] = 0.5
    ridge: Annotated[float, Field(ge=0)] = 1e-3

    def caution(self) -> str | None:
        if self.model.seen.learns_by_task:
            return None
        return "without tasks GEM has one constraint for all that is stored, as A-GEM has"

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            if not len(old):
                value = self.step(self.model.loss(batch))
                continue
            tasks = sorted(set(old.task.tolist()))
            references = torch.stack([self.gradient(self.model.loss(old[old.task == task])) for task in tasks])
            loss = self.model.loss(batch)
            gradient = self.gradient(loss)
            self.follow(project_gem(gradient, references, memory_strength=self.memory_strength, ridge=self.ridge))
            value = loss.item()
        self.remember(batch)
        return value

    def recall(self, batch: Batch) -> Batch:
        """Return up to `replay_size` stored samples of each task that is not in `batch`; of all for unknown tasks."""
        if not len(self.memory):
            return batch[:0]
        if not self.model.seen.learns_by_task:
            return self.memory.draw(self.replay_size)
        old_tasks = sorted(set(self.memory.task.tolist()) - set(batch.task.tolist()))
        of_each = [(self.memory.task == task).nonzero().flatten() for task in old_tasks]
        return join([batch[:0], *(self.memory.draw(self.replay_size, among=slots) for slots in of_each)])
