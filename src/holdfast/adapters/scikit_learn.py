"""A learner as an estimator of scikit-learn."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
from torch import nn

from holdfast.adapters._pickled import from_bytes, to_bytes
from holdfast.core.labels import Labels
from holdfast.learner import Learner
from holdfast.loading import load_learner
from holdfast.methods._sums import SumsMethod
from holdfast.methods.hedge import Hedge
from holdfast.methods.knn import KNN
from holdfast.parts import find
from holdfast.settings import Part

Array = NDArray[Any]
BATCH = 10


class HoldfastClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of scikit-learn that learns online: each batch once, in bounded memory, new classes at any time.

    Args:
        method: of the `Learner`; if neither it nor a backbone is named, nor a rate, the first rows decide as there.
        backbone: of the `Learner`; None for `mlp`, or `identity` with a method that trains no backbone.
        memory, device: of the `Learner`.
        lr: the learning rate; None leaves the default of the `Learner`.
        batch_size: rows that are learned at once.
        n_passes: how often `fit` goes through the rows. `partial_fit` goes once.
        shuffle: whether `fit` learns the rows in random order. `partial_fit` keeps their order.
        options: any other setting of the `Learner`, and any option of its method.
        random_state: of weights, memory and order; None draws a seed.

    Attributes:
        classes_: all labels known so far, sorted; they are the columns of `predict_proba`.
        learner_: the `Learner`, which numbers the classes in the order in which they came.

    Example:
        >>> rows, labels = [[0.0, 0.1], [1.0, 0.9], [0.1, 0.0], [0.9, 1.0]] * 10, ["no", "yes", "no", "yes"] * 10
        >>> HoldfastClassifier().fit(rows, labels).predict([[0.95, 1.05]]).tolist()
        ['yes']
    """

    classes_: Array
    learner_: Learner

    def __init__(
        self,
        method: str | dict[str, Any] | None = None,
        *,
        backbone: str | dict[str, Any] | nn.Module | None = None,
        memory: int | str = 1000,
        lr: float | None = None,
        batch_size: int = BATCH,
        n_passes: int = 1,
        shuffle: bool = True,
        options: dict[str, Any] | None = None,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.memory = memory
        self.lr = lr
        self.batch_size = batch_size
        self.n_passes = n_passes
        self.shuffle = shuffle
        self.options = options
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn rows X (n, …) of the labels y (n,), and nothing of what was learned before.

        Args:
            sample_weight: (n,) how much each row counts; see `Learner.observe`. A row of weight 0 is left out.
        """
        if self.n_passes < 1:
            raise ValueError(f"n_passes is {self.n_passes}: give 1 or more")
        rows, labels, weights = self._checked(X, y, sample_weight, first=True)
        random = check_random_state(self.random_state)
        self.learner_, self._labels = self._made(random), Labels()
        self.classes_ = np.unique(labels)
        for _ in range(self.n_passes):
            order = random.permutation(len(rows)) if self.shuffle else np.arange(len(rows))
            self._learn(rows[order], labels[order], None if weights is None else weights[order])
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn rows X (n, …) of the labels y (n,) in their order, after all that was learned before.

        Args:
            classes: labels that may come. None has to be named: other labels may come too.
            sample_weight: (n,) how much each row counts; see `fit`.
        """
        first = not hasattr(self, "learner_")
        rows, labels, weights = self._checked(X, y, sample_weight, first=first)
        if first:
            self.learner_, self._labels = self._made(check_random_state(self.random_state)), Labels()
            self.classes_ = labels[:0]
        named = [] if classes is None else [column_or_1d(np.asarray(classes))]
        self.classes_ = np.unique(np.concatenate([self.classes_, labels, *named]))
        self._learn(rows, labels, weights)
        return self

    def predict(self, X: Any) -> Array:
        """Return (n,), the label of each row."""
        rows = self._rows(X)
        said = self.learner_.scores(rows).argmax(dim=1).tolist()
        return np.array(self._labels.of(said), dtype=self.classes_.dtype)

    def predict_proba(self, X: Any) -> Array:
        """Return (n, n_labels) probabilities, a column for each of `classes_`; 0 for one that has not come yet."""
        rows = self._rows(X)
        known = self.learner_.predict_proba(rows)[:, : len(self._labels)].double().cpu().numpy()
        known /= known.sum(axis=1, keepdims=True)  # to the rounding of float64
        found = np.zeros((len(known), len(self.classes_)))
        found[:, np.searchsorted(self.classes_, np.array(self._labels.known, dtype=self.classes_.dtype))] = known
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Give the state for a pickle: what was learned is the bytes of a checkpoint, and no object of Python."""
        state: dict[str, Any] = super().__getstate__()
        if "learner_" not in state:
            return state
        return state | {"learner_": to_bytes(self.learner_.save), "_labels": self._labels.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore; raise ValueError for bytes that are not a whole checkpoint."""
        restored = dict(state)
        if "learner_" in state:
            own = state["backbone"] if isinstance(state["backbone"], nn.Module) else None
            load = partial(load_learner, backbone=own, device=state["device"])
            restored["learner_"] = from_bytes(state["learner_"], load)
            restored["_labels"] = Labels()
            restored["_labels"].load_state_dict(state["_labels"])
        super().__setstate__(restored)

    def _made(self, random: np.random.RandomState) -> Learner:
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}: give 1 or more")
        seed = self.random_state if isinstance(self.random_state, int) else int(random.randint(2**31 - 1))
        settings = {"memory": self.memory, "seed": seed} | ({} if self.lr is None else {"lr": self.lr})
        backbone = self.backbone
        if backbone is None and self.method is not None and _trains_no_backbone(self.method):
            backbone = "identity"
        return Learner(self.method, backbone=backbone, device=self.device, **(settings | dict(self.options or {})))

    def _checked(self, X: Any, y: Any, sample_weight: Any, *, first: bool) -> tuple[Array, Array, Array | None]:
        """Return rows, labels and weights, as arrays of the same length, without the rows of weight 0."""
        rows, labels = validate_data(self, X, y, dtype=np.float32, allow_nd=True, reset=first)
        check_classification_targets(labels)
        labels = column_or_1d(labels, warn=True)
        if sample_weight is None:
            return rows, labels, None
        weights: Array = _check_sample_weight(sample_weight, rows, dtype=np.float32, ensure_non_negative=True)
        kept = weights > 0
        if not kept.any():
            raise ValueError("every sample weight is zero: give one row a weight above 0")
        return rows[kept], labels[kept], weights[kept]

    def _learn(self, rows: Array, labels: Array, weights: Array | None) -> None:
        for start in range(0, len(rows), self.batch_size):
            part = slice(start, start + self.batch_size)
            known = len(self._labels)
            numbers = self._labels.learn(labels[part].tolist())
            try:
                self.learner_.observe(rows[part], numbers, sample_weight=None if weights is None else weights[part])
            except BaseException:
                self._labels.load_state_dict({"known": self._labels.known[:known]})
                raise

    def _rows(self, X: Any) -> Array:
        """Return (n, …) rows to predict, once something was learned."""
        check_is_fitted(self, "learner_")
        rows: Array = validate_data(self, X, dtype=np.float32, allow_nd=True, reset=False)
        return rows


def _trains_no_backbone(method: str | dict[str, Any]) -> bool:
    """Return True for a method that takes features as they are, so that a network with random weights only harms."""
    return issubclass(find("methods", Part.model_validate(method).name), SumsMethod | KNN | Hedge)
