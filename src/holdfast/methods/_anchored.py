"""Base class of methods that hold weights in place by their importance."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, fields
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.classes import tasks_own_classes
from holdfast.core.model import Model
from holdfast.core.state import Count, State, check_tensor
from holdfast.losses.importance import importance_penalty
from holdfast.methods._base import Method


@dataclass(kw_only=True, eq=False)
class AnchoredMethod(Method):
    """A method without a memory of samples: it keeps how much each weight mattered, and holds it by that.

    Every list that it keeps has one tensor a parameter, and follows a head that grows. Arithmetic on lists is torch's
    own for optimisers (`_foreach`), which makes no large copies.

    Args:
        strength: λ, how much the penalty Σ Ω (θ - θ*)² counts; 0 makes it finetuning. Plain sgd runs away
            where lr · λ Ω exceeds 1.
        consolidate_every: batches after which the importance is taken anew, besides the ends of tasks. In the
            setting `free`, where no task ends, nothing is held without it.
    """

    places: ClassVar[frozenset[str]] = frozenset({"anchor"})  # lists that say where weights were

    reads_gradients: ClassVar[bool] = True
    replaced: ClassVar[frozenset[str]] = frozenset({"anchor", "importance"})

    strength: Annotated[float, Field(ge=0)]
    consolidate_every: Annotated[int, Field(ge=1)] | None = None

    anchor: list[Tensor] = field(init=False)  # θ*, at first the weights as they begin
    importance: list[Tensor] = field(init=False)  # Ω
    n_consolidated: Count = field(default_factory=int, init=False)
    n_batches: Count = field(default_factory=int, init=False)  # since then

    def __post_init__(self) -> None:
        super().__post_init__()
        self.anchor = copies(self.weights())
        self.importance = zeros(self.anchor)

    @classmethod
    def list_names(cls) -> list[str]:
        """Return the fields that hold one tensor a parameter; a wrapper may have lists of other things."""
        return [each.name for each in fields(cls) if each.type in ("list[Tensor]", list[Tensor])]

    @classmethod
    def check_state(cls, state: State, model: Model) -> None:
        shapes = [state["model"][name].shape for name, _ in model.named_parameters()]
        for name in cls.list_names():
            if [part.shape for part in state[name]] != shapes:
                raise ValueError(f"{name} is not one tensor for each parameter")

    @abstractmethod
    def take_importance(self) -> list[Tensor]:
        """Ω from what was gathered since the last time; the anchor is still the old one."""

    def end_task(self, task: int) -> None:
        self.consolidate()

    def consolidate(self) -> None:
        """Hold the weights where they are now, by their importance so far."""
        if self.n_batches:
            self.importance = self.take_importance()
            self.anchor = copies(self.weights())
            self.n_consolidated += 1
            self.n_batches = 0

    def end_batch(self) -> None:
        """Consolidate after a batch, if it is time."""
        self.n_batches += 1
        if self.n_batches == self.consolidate_every:
            self.consolidate()

    def anchored_step(self, loss: Tensor) -> tuple[float, list[Tensor]]:
        """Take one step down `loss` and the penalty; return their sum, and the gradient of `loss` alone."""
        if not self.n_consolidated or not self.strength:
            value = self.backward(loss)
            gradient = self.last_gradient()
        else:
            penalty, pull = importance_penalty(self.weights(), self.anchor, self.importance, strength=self.strength)
            value = self.backward(loss + penalty)  # a constant here: reported and checked, but without a gradient
            gradient = self.last_gradient()
            torch._foreach_add_(pull, gradient)
            for parameter, total in zip(self.parameters(), pull, strict=True):
                if parameter.grad is not None:
                    parameter.grad = total
        self.optimizer.step()
        return value, gradient

    def learned_tensors(self) -> list[Tensor]:
        return [*super().learned_tensors(), *(tensor for kept in self._lists().values() for tensor in kept)]

    def bytes_of_classes(self) -> int:
        head = self.model.head
        row = sum(parameter[0].nbytes for parameter in head.parameters())
        return super().bytes_of_classes() + len(self._lists()) * (head.n_classes - head.n_first) * row

    def weights(self) -> list[Tensor]:
        """Return θ, as it is and as it will be: no copy."""
        return [parameter.detach() for parameter in self.parameters()]

    def last_gradient(self) -> list[Tensor]:
        """Return the last gradient, no copy; zero for parameters that it does not reach."""
        return [p.new_zeros(()).expand_as(p) if p.grad is None else p.grad for p in self.parameters()]

    def grow(self, n_classes: int) -> None:
        super().grow(n_classes)
        weights = self.weights()
        for name, kept in self._lists().items():
            # New weights were never elsewhere, and never mattered.
            beyond = weights if name in self.places else zeros(weights)
            setattr(self, name, [_continued(a, b) for a, b in zip(kept, beyond, strict=True)])

    def load_state_dict(self, state: State) -> None:
        self.check_state(state, self.model)
        super().load_state_dict(state)
        for name, kept in self._lists().items():
            for part, weight in zip(kept, self.weights(), strict=True):
                check_tensor(part, like=weight, name=f"{name} of a parameter")
            # On the device of the parameters and laid out in memory as they are, so that sums come out the same.
            setattr(self, name, [torch.empty_like(p).copy_(a) for p, a in zip(self.weights(), kept, strict=True)])

    def _lists(self) -> dict[str, list[Tensor]]:
        return {name: getattr(self, name) for name in self.list_names()}

    def caution(self) -> str | None:
        seen = self.model.seen
        if not seen.learns_by_task and self.consolidate_every is None:
            return "no task ends in this setting, so nothing is held and this is finetuning: give consolidate_every"
        if tasks_own_classes(seen.setting) and not seen.predicts_by_task:
            return "holding weights does little where classes of different tasks compete: replay some samples instead"
        return None


def copies(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


def zeros(tensors: list[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(tensor) for tensor in tensors]


def min_max(values: list[Tensor]) -> list[Tensor]:
    """Return the values scaled to lie between 0 and 1 over all tensors; all 0 where they are all the same."""
    low = torch.stack([part.min() for part in values]).min()
    high = torch.stack([part.max() for part in values]).max()
    span = (high - low).clamp(min=torch.finfo(low.dtype).tiny)
    return [(part - low) / span for part in values]


def _continued(kept: Tensor, beyond: Tensor) -> Tensor:
    """Return `kept` with the rows that `beyond` has more."""
    return kept if kept.shape == beyond.shape else torch.cat([kept, beyond[len(kept) :]])
