from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from holdfast.core.batch import Batch
from holdfast.core.model import Model, predicting
from holdfast.memory.selection._base import Selection
from holdfast.memory.storage import Memory

SIMILARITY = "similarity"  # what is kept beside a sample
FIRST_SIMILARITY = 0.1  # of samples that come when there is nothing to compare them with
LEAST_WEIGHT = 0.01  # of any stored sample when candidates are drawn, beside the largest, 1: there may be equal scores
MAX_NUMBERS = 2**24  # in the gradients that are held at once, beside those of the references


@dataclass(eq=False)
class GradientDiversity(Selection):
    """GSS-Greedy: keep samples whose gradients point away from those of what is stored.

    Aljundi et al., "Gradient Based Sample Selection for Online Continual Learning", NeurIPS 2019.

    A sample's similarity is the largest cosine of its gradient with those of some mini-batches drawn from memory, taken
    when it comes. Once memory is full, a batch is looked at only if its own gradient is opposed to all of
    them; each of its samples then meets a stored one, drawn in favour of similar ones, and takes its slot with the
    probability C_i / (C_i + c), where C_i and c are the two similarities, moved into [0, 1].
    Gradients are taken with torch.func, so a backbone of one's own has to be one that `torch.vmap` can map.

    Args:
        n_references: n, the mini-batches drawn from memory.
        reference_size: samples in each of them.
    """

    n_references: int = 10
    reference_size: int = 10

    def __post_init__(self) -> None:
        for name in ("n_references", "reference_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give 1 or more")

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
            similarity = _similarity(model, batch, self._references(memory, model))
            batch = batch.with_extra(**{SIMILARITY: similarity})
        memory.add(batch)

    def _compete(self, memory: Memory, batch: Batch, model: Model) -> None:
        references = self._references(memory, model)
        whole = gradients(model, batch.x[None], batch.y[None], batch.task[None])
        if cosines(whole, references).max() >= 0:
            return
        # No more candidates than there are slots: of a batch larger than memory the first samples compete.
        batch = batch[: len(memory)]
        similarity = _similarity(model, batch, references)

        stored = memory.extra(SIMILARITY).cpu()
        weights = (stored - stored.min()) / (stored.max() - stored.min()).clamp(min=1e-6)
        slots = torch.multinomial(weights + LEAST_WEIGHT, len(batch), generator=memory.rng)
        uniform = torch.rand(len(batch), generator=memory.rng, dtype=torch.float64)
        old, new = (stored[slots] + 1) / 2, (similarity.cpu() + 1) / 2  # C_i and c
        wins = uniform * (old + new) < old
        memory.write(slots[wins].tolist(), batch.with_extra(**{SIMILARITY: similarity})[wins.to(batch.y.device)])

    def _references(self, memory: Memory, model: Model) -> dict[str, Tensor]:
        """Gradients of mini-batches drawn from memory, no sample twice; fewer or smaller if little is stored."""
        size = min(self.reference_size, len(memory))
        n = min(self.n_references, len(memory) // size)
        drawn = memory.draw(n * size)
        columns = (column.reshape(n, size, *column.shape[1:]) for column in (drawn.x, drawn.y, drawn.task))
        return gradients(model, *columns)


def gradients(model: Model, x: Tensor, y: Tensor, task: Tensor) -> dict[str, Tensor]:
    """The gradient of the loss of each of several groups of samples, with batch statistics as when predicting.

    Args:
        x: (groups, n, …). y, task: (groups, n).

    Returns:
        For each parameter (groups, *its shape).
    """
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor, task: Tensor) -> Tensor:
        return F.cross_entropy(model.masked(functional_call(model, parameters, (x,)), task), y)

    with predicting(model):
        found: dict[str, Tensor] = vmap(grad(loss), in_dims=(None, 0, 0, 0))(parameters, x, y, task)
    return found


def cosines(left: dict[str, Tensor], right: dict[str, Tensor]) -> Tensor:
    """(n, m) the cosine of each of n gradients with each of m; zero where one of them is zero."""
    pairs = [(left[name].flatten(1), right[name].flatten(1)) for name in left]
    products = torch.stack([a @ b.T for a, b in pairs]).sum(dim=0)
    lengths = _lengths([a for a, _ in pairs])[:, None], _lengths([b for _, b in pairs])
    return (products / lengths[0] / lengths[1]).clamp(-1, 1)


def _lengths(parts: list[Tensor]) -> Tensor:
    by_part = torch.stack([torch.linalg.vector_norm(part, dim=1) for part in parts])
    lengths: Tensor = torch.linalg.vector_norm(by_part, dim=0)
    return lengths.clamp(min=torch.finfo(lengths.dtype).tiny)


def _similarity(model: Model, batch: Batch, references: dict[str, Tensor]) -> Tensor:
    """(n,) the largest cosine of each sample's gradient with the references'."""
    n_at_once = max(1, MAX_NUMBERS // sum(gradient[0].numel() for gradient in references.values()))
    found = []
    for start in range(0, len(batch), n_at_once):
        part = batch[start : start + n_at_once]
        own = gradients(model, part.x[:, None], part.y[:, None], part.task[:, None])
        found.append(cosines(own, references).amax(dim=1))
    return torch.cat(found).float()
