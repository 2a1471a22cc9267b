from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.average import WeightAverage
from holdfast.core.batch import Batch
from holdfast.core.state import State
from holdfast.losses.score_distillation import score_distillation_loss
from holdfast.methods._base import Method, TakesWeights
from holdfast.methods.wrappers._base import Augmentation, ReplayWrapper, augmented

SEED = 2  # beside the seed of the head, so that views are not drawn from the same numbers


@dataclass(kw_only=True, eq=False)
class MKD(ReplayWrapper):
    """Momentum knowledge distillation: hold the scores near those of a slow copy of the model, and predict by both.

    Michel et al., "Rethinking Momentum Knowledge Distillation in Online Continual Learning", ICML 2024.

        L = L_method(X̂) + λ/2 [ KD(T(X̂), S(X̂)) + KD(T(X̂), S(X)) ],    θ_T ← α θ + (1 - α) θ_T

    X are the new and the replayed samples of a step, X̂ a view of each, S the model, and T the teacher. The method
    learns X̂ alone, memory keeps X. KD is over all seen classes. The teacher is an exponential moving average (EMA) of
    the weights after each batch, and no end of a task is needed. Predictions are made with (θ + θ_T) / 2 and the batch
    statistics of the model.

    The authors' teacher begins near zero; here it looks back over the last tenth of the stream at first. Batch
    statistics of T are those of the batch.

    Args:
        teacher_rate: α.
        teacher_weight: λ.
        teacher_temperature: of the softmax in KD.
        views: X̂. `none` learns X itself, and one of the two terms is left out.
    """

    takes_weights: ClassVar[TakesWeights] = "no"  # distillation holds the scores of all samples alike
    derived: ClassVar[frozenset[str]] = ReplayWrapper.derived | {"_pairs"}

    teacher_rate: Annotated[float, Field(gt=0, lt=1)] = 0.01
    teacher_weight: Annotated[float, Field(ge=0)] = 5.5
    teacher_temperature: Annotated[float, Field(gt=0)] = 4.0
    views: Augmentation = "contrastive"

    teacher: WeightAverage = field(init=False)
    view_rng: torch.Generator = field(init=False)
    _pairs: list[tuple[Tensor, Tensor]] | None = field(default=None, init=False)  # X and X̂ of the running step

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average is not None:
            raise ValueError("mkd predicts by the mean of the model and its teacher: leave average out")
        self.teacher = WeightAverage(1 - self.teacher_rate)
        self.view_rng = torch.Generator().manual_seed(self.model.head.rng.initial_seed() ^ SEED)

    @classmethod
    def refusal(cls, method: type[Method]) -> str:
        if reason := super().refusal(method):
            return reason
        return "" if method.learns_head and method.one_loss else "its steps do not go down one loss of scores"

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.teacher.check(self.model)

    def observe(self, batch: Batch) -> float:
        if not self.teacher.tensors:
            self.teacher.take(self.model)
        view = augmented(batch.x, self.views, self.view_rng)
        self._pairs = [(batch.x, view)]
        try:
            with self.storing(batch):
                value = super().observe(replace(batch, x=view))  # type: ignore[safe-super]
        finally:
            self._pairs = None
        self.teacher.update(self.model)
        return value

    def recall(self, batch: Batch) -> Batch:
        old = super().recall(batch)
        if not len(old) or self._pairs is None:
            return old
        view = augmented(old.x, self.views, self.view_rng)
        self._pairs.append((old.x, view))
        return replace(old, x=view)

    def backward(self, loss: Tensor) -> float:
        if self._pairs is None:
            return super().backward(loss)
        x, view = map(torch.cat, zip(*self._pairs, strict=True))
        value = super().backward(loss + self.teacher_weight * self.distance(x, view))
        del self._pairs[1:]  # a next step recalls others
        return value

    def distance(self, x: Tensor, view: Tensor) -> Tensor:
        """Return the mean of KD(T(X̂), S(X̂)) and KD(T(X̂), S(X)), of inputs x (n, …) and a view of each."""
        with self.teacher.inside(self.model), torch.no_grad():
            held = self.model(view)
        seen = self.model.seen.all_seen().to(held.device)[None]
        learned = [view] if self.views == "none" else [view, x]
        terms = [
            score_distillation_loss(self.model(each), held, seen, temperature=self.teacher_temperature)
            for each in learned
        ]
        return torch.stack(terms).mean()

    def copy_for_predicting(self) -> Self:
        twin = super().copy_for_predicting()  # whose weights are the mean already
        twin.teacher = WeightAverage(1 - self.teacher_rate)
        return twin

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Context manager: the model predicts inside, with the mean of its weights and its teacher's."""
        with self.teacher.halfway(self.model).inside(self.model):
            yield
