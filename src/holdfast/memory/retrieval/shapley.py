from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.memory.knn_shapley import balanced_order, knn_shapley
from holdfast.memory.retrieval._base import Retrieval, old_slots
from holdfast.memory.storage import Memory


@dataclass(eq=False)
class Shapley(Retrieval):
    """ASER's retrieval: samples that stand for what is stored and stand in the way of the new batch.

    Shim et al., "Online Class-Incremental Continual Learning with Adversarial Shapley Value", AAAI 2021; the variant
    with means. A sample's score is its cooperative value less its adversarial value. Both are mean Shapley values for
    nearest neighbours: the first classifies other stored samples, balanced by class, the second the new batch.

    Args:
        n_candidates: stored samples that can be picked, and at most as many that evaluate (n_smp_cls for all classes).
        k: K, the neighbours that classify.
        old_tasks_only: where tasks are known, pick samples of other tasks than the batch's, as `old_tasks` does. Stored
            samples of the batch's tasks still take part in the classifying: if no neighbour of a new sample were of
            its class, none could be in its way.
    """

    n_candidates: Annotated[int, Field(ge=1)] = 150
    k: Annotated[int, Field(ge=1)] = 3
    old_tasks_only: bool = True

    @property
    def replays_running_task(self) -> bool:
        return not self.old_tasks_only

    def pick(self, memory: Memory, size: int, batch: Batch, model: Model) -> Batch:
        order = balanced_order(memory)
        is_old = torch.ones(len(memory), dtype=torch.bool, device=memory.device)
        if self.old_tasks_only and (slots := old_slots(memory, batch)) is not None:
            is_old = torch.zeros_like(is_old)
            is_old[slots] = True
        old = order[is_old[order]]
        if size == 0 or len(old) <= size:
            return memory[old[:size]]

        n_evaluating = min(self.n_candidates, max(1, (len(old) - size) // 2))  # the rest is still a choice
        evaluating, rest = old.tensor_split([n_evaluating])
        candidates = rest[: max(size, self.n_candidates)]
        others = order[~is_old[order]][: self.n_candidates]

        stored = torch.cat([evaluating, candidates, others])
        features = model.embed(torch.cat([memory.x[stored], batch.x]))
        judges, players, new = features.tensor_split([n_evaluating, len(stored)])
        judges_y, players_y = memory.y[stored].tensor_split([n_evaluating])
        cooperative = knn_shapley(players, players_y, eval_features=judges, eval_y=judges_y, k=self.k)
        adversarial = knn_shapley(players, players_y, eval_features=new, eval_y=batch.y, k=self.k)
        scores = cooperative.mean(dim=0) - adversarial.mean(dim=0)
        best = scores[: len(candidates)].argsort(descending=True, stable=True)[:size]
        return memory[candidates[best]]
