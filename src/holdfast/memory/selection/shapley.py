from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.memory.knn_shapley import balanced_order, class_numbers, knn_shapley
from holdfast.memory.selection._base import Selection
from holdfast.memory.storage import Memory


@dataclass(eq=False)
class Shapley(Selection):
    """ASER's update: keep the samples that are worth most to a nearest-neighbour classifier of what is stored.

    Shim et al., "Online Class-Incremental Continual Learning with Adversarial Shapley Value", AAAI 2021.

    Once memory is full, random stored samples and the new ones are valued together. A value is the sum of Shapley
    values over an evaluation set: other stored samples, balanced between classes. As many as were drawn stay, those
    worth most. New samples of a class that has less than an equal part of memory evaluate too: a class that is not
    stored could not get in otherwise.

    Args:
        n_candidates: stored samples that can lose their slot, and as many that evaluate (n_smp_cls for all classes).
        k: K, the neighbours that classify.
    """

    n_candidates: Annotated[int, Field(ge=1)] = 150
    k: Annotated[int, Field(ge=1)] = 3

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        n_free = memory.capacity - len(memory)
        memory.add(batch[:n_free])
        if n_free < len(batch):
            self._compete(memory, batch[n_free:], model)

    def _compete(self, memory: Memory, batch: Batch, model: Model) -> None:
        order = balanced_order(memory)
        evaluating, rest = order.tensor_split([max(1, min(self.n_candidates, len(memory) // 2))])
        drawn = memory.pick_distinct(len(rest), min(self.n_candidates, len(rest)))
        candidates = rest[drawn]

        slots = torch.cat([evaluating, candidates])
        features = model.embed(torch.cat([memory.x[slots], batch.x]))
        y = torch.cat([memory.y[slots], batch.y])
        players = torch.arange(len(y), device=y.device) >= len(evaluating)
        judges = ~players
        judges[len(slots) :] = _is_minority(memory, batch)
        values = knn_shapley(
            features[players], y[players], eval_features=features[judges], eval_y=y[judges], k=self.k
        ).sum(dim=0)

        stays = torch.zeros(len(values), dtype=torch.bool, device=values.device)
        stays[values.argsort(descending=True, stable=True)[: len(candidates)]] = True
        lost = candidates[~stays[: len(candidates)]]
        memory.write(lost.tolist(), batch[stays[len(candidates) :]])


def _is_minority(memory: Memory, batch: Batch) -> Tensor:
    """Return (n,), true where a new sample's class has less than an equal part of memory."""
    number = class_numbers(torch.cat([memory.task, batch.task]), torch.cat([memory.y, batch.y]))
    n_classes = int(number.max()) + 1
    stored = number[: len(memory)].bincount(minlength=n_classes)
    return stored[number[len(memory) :]] < memory.capacity / n_classes
