"""Weights that a model had, or their running average, for it to have again for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.model import Model
from holdfast.core.state import Count, Stateful, check_tensor


class StoredWeights(Stateful):
    """The weights and batch statistics that a model had, for it to have again for a while."""

    replaced: ClassVar[frozenset[str]] = frozenset({"tensors"})

    tensors: list[Tensor]

    def __init__(self) -> None:
        self.tensors = []

    def check(self, model: Model) -> None:
        """Raise ValueError if what was read from a file are not weights that the model may have had."""
        if not self.tensors:
            return
        weights = _weights(model)
        if len(self.tensors) != len(weights):
            raise ValueError(f"{len(self.tensors)} stored weights are of another model: this one has {len(weights)}")
        rows = {id(parameter) for parameter in model.head.parameters()}  # which may have grown since
        for stored, now in zip(self.tensors, weights, strict=True):
            check_tensor(stored, like=now, name="a stored weight")
            if now.ndim and not (0 < len(stored) <= len(now) if id(now) in rows else stored.shape == now.shape):
                raise ValueError(f"a stored weight has shape {tuple(stored.shape)}, not {tuple(now.shape)}")

    def take(self, model: Model) -> None:
        """Store them as they are now."""
        self.tensors = [tensor.detach().clone() for tensor in _weights(model)]

    @contextmanager
    def inside(self, model: Model) -> Iterator[None]:
        """Context manager: inside, the model has the averaged weights."""
        if not self.tensors:
            yield
            return
        weights = _weights(model)
        fitted, kept = self._fitted(weights), [tensor.data for tensor in weights]
        try:
            for tensor, stored in zip(weights, fitted, strict=True):
                tensor.data = stored
            yield
        finally:
            for tensor, own in zip(weights, kept, strict=True):
                tensor.data = own

    def _fitted(self, now: list[Tensor]) -> list[Tensor]:
        """Return what is stored in the shape, layout and device of the weights: rows that were added are as they are.

        Nothing is stored of it, since predictions change nothing.
        """
        return [_fitting(stored, tensor) for stored, tensor in zip(self.tensors, now, strict=True)]


class WeightAverage(StoredWeights):
    """The exponential average of the weights and batch statistics that a model had after each batch.

    Online steps are few and large, so the weights of any one moment are noisy; their average is much less so
    (Polyak and Juditsky, SIAM J. Control Optim. 1992). At first it looks back over the last tenth of the stream, so
    that the initial weights soon fade. In the end it looks back over about 1 / (1 - decay) batches.
    """

    decay: Annotated[float, Field(gt=0, lt=1)]
    n_updates: Count

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.n_updates = 0

    @torch.no_grad()
    def update(self, model: Model) -> None:
        """Take in the weights as they are now."""
        if not self.tensors:
            self.take(model)
        now = _weights(model)
        self.n_updates += 1
        decay = min(self.decay, self.n_updates / (self.n_updates + 9))
        self.tensors = list(torch._foreach_lerp(self._fitted(now), now, 1 - decay))

    def halfway(self, model: Model) -> StoredWeights:
        """Return the mean of these weights and those that the model has; batch statistics are the model's own."""
        between, now = StoredWeights(), [tensor.detach() for tensor in _weights(model)]
        if self.tensors:
            n = len(list(model.parameters()))
            between.tensors = [*torch._foreach_lerp(self._fitted(now)[:n], now[:n], 0.5), *now[n:]]
        return between


def _fitting(stored: Tensor, now: Tensor) -> Tensor:
    if stored.shape != now.shape:
        return torch.cat([stored.to(now.device), now.detach()[len(stored) :]])
    if (stored.stride(), stored.device) != (now.stride(), now.device):  # read from a file
        return torch.empty_like(now).copy_(stored).detach()
    return stored


def _weights(model: Model) -> list[Tensor]:
    """Return the averaged tensors: parameters and running statistics, but no counts."""
    return [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.is_floating_point())]
