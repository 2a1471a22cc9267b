"""Data in motion and at rest: samples with their classes and tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

NO_TASK = -1  # the task of a sample whose task is not known

# Names of extras that the parts of the package keep beside samples.
FEATURE = "feature"  # of the backbone, by the model as it was
LOGITS, N_UNITS = "logits", "n_units"  # of the head, and how many rows it had
CENTROID = "centroid"  # number of the centroid that a sample belongs to
SIMILARITY = "similarity"  # of gradients, when the sample came
WEIGHT = "weight"  # how much a sample counts in the loss; 1 for a sample without it
TaskNumber = Annotated[int, Field(ge=NO_TASK, lt=2**63)]


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """n samples.

    Attributes:
        x: (n, …) inputs, in whatever dtype they came.
        y: (n,) classes, int64.
        task: (n,) tasks, int64; NO_TASK where unknown.
        extra: what a method wants to find again beside a sample, each (n, …).

    Example:
        >>> batch = Batch(torch.zeros(3, 2), torch.tensor([0, 1, 1]), torch.full((3,), NO_TASK))
        >>> len(batch), batch[[0, 2]].y.tolist(), batch[batch.y == 1].x.shape
        (3, [0, 1], torch.Size([2, 2]))
    """

    x: Tensor
    y: Tensor
    task: Tensor
    extra: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.y.shape[0]

    @property
    def weight(self) -> Tensor | None:
        """(n,) Return how much each sample counts in the loss; None where each counts 1."""
        return self.extra.get(WEIGHT)

    def __getitem__(self, index: slice | Tensor | Sequence[int]) -> Batch:
        if isinstance(index, slice):
            extra = {name: column[index] for name, column in self.extra.items()}
            return Batch(self.x[index], self.y[index], self.task[index], extra)
        rows = index if isinstance(index, Tensor) else torch.tensor(index, dtype=torch.int64, device=self.y.device)
        if rows.dtype == torch.bool:
            rows = rows.nonzero().flatten()
        # Several times faster than indexing, which counts where batches are small.
        extra = {name: column.index_select(0, rows) for name, column in self.extra.items()}
        return Batch(self.x.index_select(0, rows), self.y.index_select(0, rows), self.task.index_select(0, rows), extra)

    def samples(self) -> Iterator[Batch]:
        """Yield one batch of one sample after the other.

        Example:
            >>> batch = Batch(torch.zeros(2, 5), torch.tensor([4, 7]), torch.zeros(2, dtype=torch.int64))
            >>> [sample.y.tolist() for sample in batch.samples()]
            [[4], [7]]
        """
        for i in range(len(self)):
            yield self[i : i + 1]

    def with_extra(self, **columns: Tensor) -> Batch:
        """Return the same samples with more beside them.

        Example:
            >>> batch = Batch(torch.zeros(2, 5), torch.tensor([4, 7]), torch.zeros(2, dtype=torch.int64))
            >>> batch.with_extra(logits=torch.ones(2, 3))[:1].extra["logits"].shape
            torch.Size([1, 3])
        """
        return Batch(self.x, self.y, self.task, {**self.extra, **columns})

    def to(self, device: torch.device) -> Batch:
        extra = {name: column.to(device) for name, column in self.extra.items()}
        return Batch(self.x.to(device), self.y.to(device), self.task.to(device), extra)


def join(batches: Sequence[Batch]) -> Batch:
    """Return one batch of all samples, in order; the extras are those that all of them have, and weights of any.

    Example:
        >>> one = Batch(torch.zeros(1, 2), torch.tensor([3]), torch.tensor([0]))
        >>> join([one, one]).y.tolist()
        [3, 3]
    """
    shared = set.intersection(*(set(batch.extra) for batch in batches))
    weights = None if WEIGHT in shared else joined_weights(batches)
    joined = Batch(
        torch.cat([batch.x for batch in batches]),
        torch.cat([batch.y for batch in batches]),
        torch.cat([batch.task for batch in batches]),
        {name: torch.cat([batch.extra[name] for batch in batches]) for name in sorted(shared)},
    )
    return joined if weights is None else joined.with_extra(**{WEIGHT: weights})


def joined_weights(batches: Sequence[Batch]) -> Tensor | None:
    """(n,) Return the weights of the samples of all batches, in order; None where each counts 1.

    Example:
        >>> one = Batch(torch.zeros(1, 2), torch.tensor([3]), torch.tensor([0]))
        >>> joined_weights([one, one.with_extra(weight=torch.tensor([0.5]))])
        tensor([1.0000, 0.5000])
    """
    given = [batch.weight for batch in batches]
    if all(each is None for each in given):
        return None
    return torch.cat(
        [
            torch.ones(len(batch), device=batch.y.device) if each is None else each
            for batch, each in zip(batches, given, strict=True)
        ]
    )
