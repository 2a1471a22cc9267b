"""Base class of methods whose whole state is a sum over samples."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.options import option
from holdfast.core.state import State
from holdfast.core.sums import ClassSums
from holdfast.core.undo import Undo
from holdfast.memory.storage import check_allocation
from holdfast.methods._base import Diverged, Method, TakesWeights

LEAST = torch.finfo(torch.float32).min  # the score of a class of which nothing was learned


@dataclass(frozen=True, eq=False)
class Fixed:
    """Tensors that nobody writes into any more: a copy shares them."""

    tensors: tuple[Tensor, ...]
    n_samples: int = 0  # that they were worked out from

    def __deepcopy__(self, memo: dict[int, Any]) -> Fixed:
        return self


@dataclass(kw_only=True, eq=False)
class SumsMethod(Method):
    """Learns by adding up features; the backbone keeps its weights, and no sample is stored.

    Sums have no order: after the same samples the state has the same bits, whatever their order and batches. So two
    learners that learned apart merge into the one that learned everything, and what was learned can be forgotten.
    There is no loss to go down: `observe` gives 0.

    Args:
        power: of the sizes of features, before anything else is done with them; signs stay. Below 1 it draws long tails
            in, as of features behind a ReLU (Tukey's ladder; 0.5 in FeCAM of Goswami et al., NeurIPS 2023).
    """

    derived: ClassVar[frozenset[str]] = frozenset({"_solution"})
    replaced: ClassVar[frozenset[str]] = frozenset({"_solution", "_matrix", "_drawn"})
    standardises: ClassVar[bool] = False  # sums of inputs in units that move would be sums of different things
    reads: ClassVar[frozenset[str]] = frozenset({"sums", "_solution"})
    takes_weights: ClassVar[TakesWeights] = "count"
    learns_head: ClassVar[bool] = False
    one_loss: ClassVar[bool] = False
    products: ClassVar[bool] = True  # whether Σ x xᵀ is needed

    power: Annotated[float, Field(gt=0, le=1)] = option(1.0, before=1.0)

    sums: ClassSums = field(init=False)
    _solution: Any = field(default=None, init=False)  # what scores are worked out with, until the sums change

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps_per_batch != 1 or self.average is not None:
            raise ValueError("a method that adds up features takes no steps: leave steps_per_batch and average out")
        width = self.n_summed
        check_allocation(8 * width * width * (2 if self.products else 0))
        self.sums = ClassSums(self.model.head.n_classes, width, products=self.products)

    @property
    def n_features(self) -> int:
        """Return the number of features of the backbone."""
        return self.model.head.weight.shape[1]

    @property
    def n_summed(self) -> int:
        """Return the number of values that are added up for each sample."""
        return self.n_features

    def described(self, x: Tensor) -> Tensor:
        """Return (n, n_summed), what is added up of inputs: float64, on the CPU."""
        features = self.model.embed(x).cpu().double()
        # One number to compare, and NaN is below nothing.
        if not features.abs().max().item() < math.inf:
            raise Diverged("the backbone makes features that are not finite: nothing was learned of this batch")
        if self.power != 1:
            # Rounded to float32: what is below may differ with the place of a sample in its batch.
            features = (features.sign() * features.abs() ** self.power).float().double()
        return self.transformed(features)

    def transformed(self, features: Tensor) -> Tensor:
        """Return (n, n_summed), what is added up of features (n, n_features)."""
        return features

    def observe(self, batch: Batch) -> float:
        self.sums.add(self.described(batch.x), batch.y)
        return 0.0

    def forget(self, batch: Batch) -> list[int]:
        """Take samples out of the sums; gives the classes of which none are left."""
        self.sums.subtract(self.described(batch.x), batch.y)
        self._solution = None
        return [c for c in sorted(set(batch.y.tolist())) if self.sums.counts[c] == 0]

    def merge(self, other: Method) -> None:
        assert isinstance(other, SumsMethod)
        if other.sums.n_classes > self.model.head.n_classes:
            self.grow(other.sums.n_classes)
        self.sums.merge(other.sums)
        self._solution = None

    def grow(self, n_classes: int) -> None:
        super().grow(n_classes)
        self.sums.grow(n_classes)
        self._solution = None

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        """Return (n, n_classes), one number a class, the least there is for one of which nothing was learned."""
        features = self.described(x)
        self._solve()
        scores = self.sum_scores(features)
        scores = scores.masked_fill(self.sums.counts == 0, LEAST).to(self.model.head.weight)
        return self.model.masked(scores, task)

    def keep_for_undo(self, undo: Undo) -> None:
        super().keep_for_undo(undo)
        if self._solution is not None and not isinstance(self._solution, Fixed):
            undo.attributes(self._solution)

    def prepare_to_predict(self) -> None:
        if self.sums.n_samples:
            self._solve()

    def _solve(self) -> None:
        """Work out the solution; Diverged if the sums have none."""
        try:
            self.work_out()
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise Diverged(
                f"the sums over the samples have no solution ({error}): go back to the last save, or learn anew"
            ) from error

    def bytes_of_classes(self) -> int:
        n_windows = max(1, len(self.sums.sums_by_window))
        return super().bytes_of_classes() + self.sums.n_classes * 8 * (1 + n_windows * self.n_summed)

    def learned_tensors(self) -> list[Tensor]:
        return []  # features are looked at before they are added, and whole numbers stay finite

    @abstractmethod
    def work_out(self) -> None:
        """Bring `_solution` up to the sums of now, if it is not there yet."""

    @abstractmethod
    def sum_scores(self, features: Tensor) -> Tensor:
        """Return (n, n_classes) scores of what `described` gives, by `_solution`."""

    def caution(self) -> str | None:
        backbone = self.model.backbone
        if getattr(backbone, "pretraining", "") == "none" and any(True for _ in backbone.parameters()):
            return (
                "the backbone is not trained and keeps its random first weights: give it pretrained ones, or identity"
            )
        return None

    def state_dict(self) -> State:
        # After a save, the learner and its copy work out their scores alike: from the sums.
        self._solution = None
        return super().state_dict()

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        if self.sums.n_classes != self.model.head.n_classes:
            raise ValueError(f"sums of {self.sums.n_classes} classes, but a head of {self.model.head.n_classes}")
