from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.model import predicting
from holdfast.methods._stored_means import stored_mean_scores, stored_means
from holdfast.methods.wrappers._base import ReplayWrapper


@dataclass(kw_only=True, eq=False)
class NCM(ReplayWrapper):
    """Predict by the nearest mean of stored samples' features, whatever the method learns with.

    Mai et al., "Online Continual Learning in Image Classification: An Empirical Survey", Neurocomputing 2022. A head
    that learned new classes last prefers them; means of stored samples do not. A class of which nothing is stored has
    the least score, -1.
    """

    derived: ClassVar[frozenset[str]] = ReplayWrapper.derived | {"_stored_means"}

    reads: ClassVar[frozenset[str]] = frozenset({"_stored_means"})

    _stored_means: tuple[Tensor, Tensor] | None = field(default=None, init=False)  # until the next batch

    def observe(self, batch: Batch) -> float:
        self._stored_means = None
        return super().observe(batch)  # type: ignore[safe-super]

    def end_task(self, task: int) -> None:
        self._stored_means = None
        super().end_task(task)

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        """Return (n, n_classes) cosine of features with the mean of each class."""
        with predicting(self.model):
            scores = stored_mean_scores(self.model.features(x), *self.means(), self.model.head.n_classes)
            return self.model.masked(scores, task)

    def prepare_to_predict(self) -> None:
        self.means()

    def means(self) -> tuple[Tensor, Tensor]:
        """Return (k, n_features), the mean of each class of each task in memory, and (k,) its class; cached."""
        if self._stored_means is None:
            self._stored_means = stored_means(self.model, self.memory)
        return self._stored_means
