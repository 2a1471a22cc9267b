"""A learner of tables as a classifier of River."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from river.base import MiniBatchClassifier

from holdfast.adapters._pickled import from_bytes, to_bytes
from holdfast.core.labels import Label, plain_label
from holdfast.tables import TableLearner, as_rows, check_weight, load_table_learner

if TYPE_CHECKING:
    import pandas as pd

LABEL = "(label)"  # the column in which the learner of tables finds the label
WEIGHT = "(weight)"  # of a row that waits; 1 where there is none
Row = dict[str, Any]


class RiverClassifier(MiniBatchClassifier):
    """Classifier of River with bounded memory: numbers, categories and missing values, labels of any kind.

    Rows wait until `batch` of them are there, and are then learned at once. The first of these batches decides the kind
    of each column, as `TableLearner` says. A column that comes later is left out; one that is absent is missing. Until
    the first batch is learned, a prediction is the share of each label among the rows that wait.

    Args:
        batch: rows that are learned at once.
        method: of the learner; None for the default of `TableLearner`.
        seed: of weights and memory.
        settings: any other setting of the `Learner`, and any option of its method.

    Example:
        >>> model = RiverClassifier(batch=5)
        >>> for i in range(100):
        ...     model.learn_one({"size": i % 7, "kind": "ab"[i % 2]}, ["no", "yes"][i % 2])
        >>> model.predict_one({"size": 3, "kind": "b"})
        'yes'
    """

    def __init__(self, batch: int = 10, method: str | None = None, seed: int = 0, **settings: Any) -> None:
        self.batch = batch
        self.method = method
        self.seed = seed
        self.settings = settings
        self._table = self._new_table()
        self._waiting: list[Row] = []

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def learner(self) -> TableLearner:
        """Learner of tables; its `learner` is the `Learner` of vectors."""
        return self._table

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn a row of named values and its label.

        Args:
            w: how much the row counts; see `Learner.observe`.
        """
        self._learn([_named(x)], [y], [w])

    def learn_many(
        self, X: pd.DataFrame, y: Sequence[Any] | pd.Series, w: float | Sequence[float] | pd.Series = 1.0
    ) -> None:
        """Learn the rows of a frame and their labels (n,).

        Args:
            w: how much each row counts, (n,) or one number for all.
        """
        rows = [_named(row) for row in as_rows(X)]
        self._learn(rows, list(y), [w] * len(rows) if isinstance(w, int | float) else list(w))

    def predict_proba_one(self, x: Mapping[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each label that came; nothing before the first."""
        (found,) = self._chances([_named(x)])
        return found

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the probability of each label, a column, for each row of a frame."""
        import pandas as pd

        return pd.DataFrame(self._chances([_named(row) for row in as_rows(X)]), index=X.index)

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """Return the label of each row of a frame; None before the first label came."""
        import pandas as pd

        found = self._chances([_named(row) for row in as_rows(X)])
        said = [max(chances, key=chances.__getitem__) if chances else None for chances in found]
        return pd.Series(said, index=X.index, dtype=None if all(said) else object)

    def __getstate__(self) -> dict[str, Any]:
        """Give the state for a pickle: what was learned is the bytes of a checkpoint, and no object of Python."""
        state = dict(vars(self))
        state["_table"] = to_bytes(self._table.save) if self._table.n_rows else None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore; raise CorruptCheckpoint or another ValueError for damaged bytes."""
        vars(self).update(state)
        if state["_table"] is None:
            self._table = self._new_table()
        else:
            self._table = from_bytes(state["_table"], load_table_learner)

    def _new_table(self) -> TableLearner:
        return TableLearner(LABEL, method=self.method, batch=self.batch, seed=self.seed, **self.settings)

    def _learn(self, rows: list[Row], labels: list[Any], weights: list[float]) -> None:
        """Let rows wait with their labels, and learn whole batches of those that wait. A bad row changes nothing."""
        labelled = [
            row | {LABEL: plain_label(label)} | ({} if weight == 1 else {WEIGHT: weight})
            for row, label, weight in zip(rows, labels, weights, strict=True)
        ]
        for i, row in enumerate(labelled):
            self._table.check(self._fitted(row), f"row {i}", with_label=True)
            check_weight(row.get(WEIGHT, 1.0), "w", f"row {i}")
        for row in labelled:
            self._waiting.append(row)
            if len(self._waiting) >= self.batch:
                waiting, self._waiting = self._waiting, []
                given = [row.get(WEIGHT, 1.0) for row in waiting]
                self._table.observe([self._fitted(each) for each in waiting], weights=given)

    def _chances(self, rows: list[Row]) -> list[dict[Label, float]]:
        """Return for each row the probability of each label that came, those of rows that wait included."""
        wait = Counter(row[LABEL] for row in self._waiting)
        if not self._table.n_rows:
            n = sum(wait.values())
            return [{label: count / n for label, count in wait.items()} for _ in rows]
        inputs = self._table.inputs([self._fitted(row) for row in rows])
        found = self._table.learner.predict_proba(inputs)[:, : len(self._table.labels)].double()
        chances = (found / found.sum(dim=1, keepdim=True)).tolist()
        known = self._table.labels.known
        new = dict.fromkeys((label for label in wait if label not in known), 0.0)
        return [dict(zip(known, row, strict=True)) | new for row in chances]

    def _fitted(self, row: Row) -> Row:
        """Return a row with the columns that the first batch had, once that was learned, and without its weight."""
        names = self._table.columns.names
        if not names:
            return {name: value for name, value in row.items() if name != WEIGHT}
        label = {LABEL: row[LABEL]} if LABEL in row else {}
        return {name: row.get(name) for name in names} | label


def _named(x: Mapping[Any, Any]) -> Row:
    """Return a row with its columns in alphabetical order: their order in a dict means nothing to River."""
    return dict(sorted(((str(name), value) for name, value in x.items()), key=lambda pair: pair[0]))
