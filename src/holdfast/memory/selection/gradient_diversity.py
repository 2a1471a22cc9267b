from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import SIMILARITY, Batch
from holdfast.core.gradients import flat_gradient
from holdfast.core.model import Model, predicting
from holdfast.memory.selection._base import Selection
from holdfast.memory.storage import Memory

FIRST_SIMILARITY = 0.1  # of samples that come when there is nothing to compare them with
LEAST_WEIGHT = 0.01  # of any stored sample when candidates are drawn, beside the largest, 1: there may be equal scores


@dataclass(eq=False)
class GradientDiversity(Selection):
    """GSS-Greedy: keep samples whose gradients point away from those of what is stored.

    Aljundi et al., "Gradient Based Sample Selection for Online Continual Learning", NeurIPS 2019.

    A sample's similarity is the largest cosine of its gradient with those of some mini-batches drawn from memory, taken
    when it comes. Once memory is full, a batch is looked at only if its own gradient is opposed to all of
    them; each of its samples then meets a stored one, drawn in favour of similar ones. It takes the slot with
    probability C_i / (C_i + c), where C_i and c are the two similarities, moved into [0, 1].

    Args:
        n_references: n, the mini-batches drawn from memory.
        reference_size: samples in each of them.
    """

    extras: ClassVar[frozenset[str]] = frozenset({SIMILARITY})
    needs_head: ClassVar[bool] = True  # whose gradients are compared

    n_references: Annotated[int, Field(ge=1)] = 10
    reference_size: Annotated[int, Field(ge=1)] = 10

    def check(self, memory: Memory, model: Model) -> None:
        if bool((memory.require_extra(SIMILARITY, torch.float32, ()).abs() > 1).any()):
            raise ValueError("a similarity in memory is no cosine")

    def with_extras(self, batch: Batch, model: Model) -> Batch:
        """Beside each sample room for its similarity."""
        return batch.with_extra(**{SIMILARITY: torch.full(batch.y.shape, FIRST_SIMILARITY, device=batch.y.device)})

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        n_free = memory.capacity - len(memory)
        if n_free:
            self._fill(memory, batch[:n_free], model)
        if n_free < len(batch):
            self._compete(memory, batch[n_free:], model)

    def _fill(self, memory: Memory, batch: Batch, model: Model) -> None:
        if len(memory):
            references = self._references(memory, model)
            similarity = torch.stack([_similarity(model, sample, references) for sample in batch.samples()])
            batch = batch.with_extra(**{SIMILARITY: similarity})
        memory.add(batch)

    def _compete(self, memory: Memory, batch: Batch, model: Model) -> None:
        references = self._references(memory, model)
        if _similarity(model, batch, references) >= 0:
            return
        # No more candidates than there are slots: of a batch larger than memory the first samples compete.
        batch = batch[: len(memory)]
        similarity = torch.stack([_similarity(model, sample, references) for sample in batch.samples()])

        stored = memory.extra(SIMILARITY).cpu()
        weights = (stored - stored.min()) / (stored.max() - stored.min()).clamp(min=1e-6)
        slots = torch.multinomial(weights + LEAST_WEIGHT, len(batch), generator=memory.rng)
        uniform = torch.rand(len(batch), generator=memory.rng, dtype=torch.float64)
        old, new = (stored[slots] + 1) / 2, (similarity.cpu() + 1) / 2  # C_i and c
        wins = uniform * (old + new) < old
        memory.write(slots[wins].tolist(), batch.with_extra(**{SIMILARITY: similarity})[wins.to(batch.y.device)])

    def _references(self, memory: Memory, model: Model) -> Tensor:
        """Return (n, p) directions of mini-batches from memory, no sample twice; fewer if little is stored."""
        size = min(self.reference_size, len(memory))
        n = min(self.n_references, len(memory) // size)
        drawn = memory.draw(n * size)
        return torch.stack([direction(model, drawn[i * size : (i + 1) * size]) for i in range(n)])


def direction(model: Model, batch: Batch) -> Tensor:
    """Return (p,), the gradient of the batch's loss with length one, with batch statistics as when predicting.

    Zero where the gradient is.
    """
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with predicting(model), torch.enable_grad():
        gradient = flat_gradient(model.loss(batch), learned)
    length: Tensor = torch.linalg.vector_norm(gradient)
    return gradient / length.clamp(min=torch.finfo(length.dtype).tiny)


def _similarity(model: Model, batch: Batch, references: Tensor) -> Tensor:
    """Return (), the largest cosine of the batch's gradient with the `references` (n, p), which are directions."""
    return (references @ direction(model, batch)).max().clamp(-1, 1).float()
