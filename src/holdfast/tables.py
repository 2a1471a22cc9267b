"""Learn tables row by row: mixed columns, labels of any kind, and accuracy on rows before they are learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.columns import BadRow, Columns, is_missing
from holdfast.core.checkpoint import read_checkpoint, write_checkpoint
from holdfast.core.detectors import Adwin
from holdfast.core.inputs import MAX_WEIGHT
from holdfast.core.labels import Label, Labels, plain_label
from holdfast.core.state import Count, State, Stateful
from holdfast.data.rows import PICTURE
from holdfast.learner import Learner
from holdfast.loading import load_learner

BATCH = 10


class Accuracy(Stateful):
    """Accuracy on samples before they are learned: of the whole stream, of the last 1,000, faded, and by class.

    ADWIN watches the errors; a rise is an alarm.
    """

    WINDOW = 1000
    FADING = 0.999
    POINTS = 400  # of the curve, at most

    n: Count
    right: Count
    last: list[int]
    faded_right: float
    faded_n: float
    by_class: list[list[Count]]
    curve: list[list[float]]
    every: Count
    alarms: list[Count]

    def __init__(self) -> None:
        self.n = self.right = 0
        self.last = []
        self.faded_right = self.faded_n = 0.0
        self.by_class = []  # right ones and all, by class
        self.curve = []  # samples, accuracy of the last ones, faded accuracy
        self.every = self.WINDOW // 10
        self.alarms = []  # samples before each
        self.detector = Adwin()

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        counts = [(self.right, self.n), *self.by_class]
        is_counted = all(len(pair) == 2 and 0 <= pair[0] <= pair[1] for pair in counts)
        if not is_counted or self.every < 1 or any(len(place) != 3 for place in self.curve):
            raise ValueError("the saved accuracies do not fit each other")

    @property
    def whole(self) -> float:
        return self.right / max(self.n, 1)

    @property
    def window(self) -> float:
        return sum(self.last) / max(len(self.last), 1)

    @property
    def faded(self) -> float:
        return self.faded_right / max(self.faded_n, 1e-12)

    def update(self, predicted: Sequence[int | None], y: Sequence[int]) -> None:
        """Take in what was said of new samples, and their classes; None where nothing was known yet."""
        for said, true in zip(predicted, y, strict=True):
            right = said == true
            while len(self.by_class) <= true:
                self.by_class.append([0, 0])
            self.by_class[true][0] += right
            self.by_class[true][1] += 1
            self.n += 1
            self.right += right
            self.last = [*self.last[-self.WINDOW + 1 :], int(right)]
            self.faded_right = self.FADING * self.faded_right + right
            self.faded_n = self.FADING * self.faded_n + 1
            before = self.detector.mean
            if self.detector.update(float(not right)) and self.detector.mean > before:
                self.alarms.append(self.n)
            if self.n % self.every == 0:
                self.curve.append([float(self.n), self.window, self.faded])
                if len(self.curve) > self.POINTS:
                    self.curve, self.every = self.curve[1::2], 2 * self.every


class TableLearner:
    """Learns a table in its order, each row tested before it is learned.

    Args:
        label: the column of the label.
        method: of the learner; by default `hedge`, for tables, and the learner's own default for pictures.
        batch: rows that are learned at once.
        drop: columns that are left out.
        weight: the column of the weight, a number from 0; see `Learner.observe`. A row of weight 0 is left out.
        settings: any setting of `Learner`.

    Example:
        >>> rows = [{"size": i % 7, "kind": "ab"[i % 2], "label": ["no", "yes"][i % 2]} for i in range(200)]
        >>> learner = TableLearner("label")
        >>> learner.learn(rows).n
        200
        >>> learner.predict([{"size": 3, "kind": "b"}])
        ['yes']
    """

    def __init__(
        self,
        label: str,
        *,
        method: str | None = None,
        batch: int = BATCH,
        drop: Sequence[str] = (),
        weight: str | None = None,
        **settings: Any,
    ) -> None:
        if batch < 1:
            raise ValueError(f"batch is {batch}: give 1 row or more")
        if weight == label:
            raise ValueError(f"the column '{label}' cannot be both label and weight: name another")
        self.label = label
        self.weight = weight
        self.batch = batch
        self.drop = list(drop)
        self.n_rows = 0  # read, bad ones included
        self.n_bad = 0
        self.labels = Labels()
        self.columns = Columns()
        self.accuracy = Accuracy()
        self._asked = {"method": method, **settings}
        self._learner: Learner | None = None

    @property
    def learner(self) -> Learner:
        """Learner of vectors; RuntimeError before the first row."""
        if self._learner is None:
            raise RuntimeError("nothing was learned yet: call learn(rows) first")
        return self._learner

    def learn(self, rows: Any) -> Accuracy:
        """Test and then learn rows: a frame of pandas, dicts of columns, or any iterator of dicts.

        A bad row raises BadRow; then no row of its batch is learned. Gives the accuracy so far.
        """
        waiting: list[Mapping[str, Any]] = []
        for row in as_rows(rows):
            waiting.append(row)
            if len(waiting) == self.batch:
                self.observe(waiting)
                waiting = []
        if waiting:
            self.observe(waiting)
        return self.accuracy

    def observe(
        self,
        rows: Sequence[Mapping[str, Any]],
        where: Sequence[str] = (),
        *,
        weights: Sequence[float] | None = None,
    ) -> float:
        """Test and then learn one batch of rows; gives the loss.

        Args:
            where: where each row stands, for messages.
            weights: how much each row counts; None takes the column of the weight, if there is one.
        """
        places = list(where) or [f"row {self.n_rows + i}" for i in range(len(rows))]
        for row, place in zip(rows, places, strict=True):
            self.check(row, place, with_label=True)
        n_read = len(rows)
        if weights is None and self.weight is not None:
            weights = [float(row[self.weight]) for row in rows]
        if weights is not None:
            kept = [i for i, weight in enumerate(weights) if weight > 0]
            rows, places, weights = [rows[i] for i in kept], [places[i] for i in kept], [weights[i] for i in kept]
        if not rows:
            self.n_rows += n_read
            return 0.0
        labels = [_label(row[self.label]) for row in rows]
        inputs = [self._inputs_of(row) for row in rows]
        before = (self.columns, self._learner, len(self.labels))
        try:
            if PICTURE not in inputs[0] and not self.columns.settled:
                self._settle(inputs, places)
            x = self._vectors(inputs)
            said: list[int | None] = [None] * len(rows) if self._learner is None else self._learner.predict(x).tolist()
            y = self.labels.learn(labels)
            if self._learner is None:
                self._learner = self._made(picture=PICTURE in inputs[0])
                self._name_columns()
            loss = self._learner.observe(x, y, sample_weight=weights)
        except BaseException:
            self.columns, self._learner, known = before
            self.labels.load_state_dict({"known": self.labels.known[:known]})
            raise
        if self.columns.settled:
            self.columns.learn(inputs, y.tolist())
        self.accuracy.update(said, y.tolist())
        self.n_rows += n_read
        return loss

    def _settle(self, inputs: Sequence[Mapping[str, Any]], places: Sequence[str]) -> None:
        """Decide the kinds of columns by the first rows, unless one of them is bad."""
        settled = Columns()
        settled.settle(inputs)
        for row, place in zip(inputs, places, strict=True):
            settled.check(row, place)
        self.columns = settled

    def _name_columns(self) -> None:
        """Let warnings of the learner name the columns."""
        if self.columns.settled and self.learner.practice is not None:
            self.learner.practice.column_names = self.columns.vector_names()

    def check(self, row: Mapping[str, Any], where: str, *, with_label: bool) -> None:
        """Raise BadRow for a row that cannot be learned, or of which nothing can be said."""
        if with_label and (self.label not in row or is_missing(row[self.label])):
            there = ", ".join(f"'{name}'" for name in list(row)[:8])
            raise BadRow(f"{where}: found no label in column '{self.label}', only {there}: give the row a label")
        if with_label and self.weight is not None:
            check_weight(row.get(self.weight), self.weight, where)
        if with_label:
            try:
                plain_label(row[self.label])
            except ValueError as error:
                raise BadRow(f"{where}: {error}") from error
        inputs = self._inputs_of(row)
        if not inputs:
            raise BadRow(f"{where}: found no columns beside the label")
        if self._learner is not None and (PICTURE in inputs) == self.columns.settled:
            raise BadRow(f"{where}: found {'a picture' if PICTURE in inputs else 'columns'}, unlike the first rows")
        if self.columns.settled:
            self.columns.check(inputs, where)

    def skip(self, n_rows: int) -> None:
        """Count bad rows that were left out."""
        self.n_rows += n_rows
        self.n_bad += n_rows

    def predict(self, rows: Any) -> list[Label]:
        """Return the label of each row; a row may have a label, which is not looked at."""
        given = list(as_rows(rows))
        return self.labels.of(self.learner.predict(self.inputs(given)).tolist()) if given else []

    def inputs(self, rows: Any) -> Tensor:
        """Return (n, …) rows as inputs of `learner`; a row may have a label, which is not looked at."""
        inputs = [self._inputs_of(row) for row in as_rows(rows)]
        for i, row in enumerate(inputs):
            self.check(row, f"row {i}", with_label=False)
        return self._vectors(inputs)

    def save(self, path: str | Path) -> None:
        """Write everything to one file, which `load_table_learner` reads, and `load_learner` the vectors' part."""
        write_checkpoint(Path(path), self.state_dict())

    def state_dict(self) -> State:
        return {
            "table": {"label": self.label, "batch": self.batch, "drop": self.drop, "n_rows": self.n_rows}
            | {"n_bad": self.n_bad}
            | ({} if self.weight is None else {"weight": self.weight}),
            "labels": self.labels.state_dict(),
            "columns": self.columns.state_dict(),
            "accuracy": self.accuracy.state_dict(),
            "learner": self.learner.state_dict(),
        }

    def _inputs_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        others = (self.label, self.weight, *self.drop)
        return {str(name): value for name, value in row.items() if name not in others}

    def _vectors(self, inputs: Sequence[Mapping[str, Any]]) -> Tensor:
        if self.columns.settled:
            return self.columns.vectors(inputs)
        shapes = {np.shape(row[PICTURE]) for row in inputs}
        if len(shapes) > 1:
            raise BadRow(f"found pictures of the shapes {sorted(shapes)}, expected one: resize them")
        return torch.from_numpy(np.stack([np.asarray(row[PICTURE]) for row in inputs]))

    def _made(self, *, picture: bool) -> Learner:
        asked = {name: value for name, value in self._asked.items() if value is not None}
        if not picture and asked.get("method", "hedge") == "hedge":
            asked = {"method": "hedge", "backbone": "identity"} | asked
        return Learner(**asked)


def load_table_learner(path: str | Path, *, trust_code: bool = False) -> TableLearner:
    """Load what `TableLearner.save` wrote. A damaged file raises CorruptCheckpoint or another ValueError."""
    path = Path(path)
    state = read_checkpoint(path)
    table = state.get("table")
    if not isinstance(table, dict) or not isinstance(table.get("label"), str):
        raise ValueError(f"{path} is not the file of a table's learner: 'holdfast learn' makes one")
    counts = [table.get(name) for name in ("batch", "n_rows", "n_bad")]
    if any(type(count) is not int or count < 0 for count in counts) or not isinstance(table.get("drop"), list):
        raise ValueError(f"{path} does not say how its table was read")
    weight = table.get("weight")
    if weight is not None and not isinstance(weight, str):
        raise ValueError(f"{path} does not say how its table was read")
    dropped = [str(name) for name in table["drop"]]
    made = TableLearner(table["label"], batch=table["batch"], drop=dropped, weight=weight)
    made.n_rows, made.n_bad = table["n_rows"], table["n_bad"]
    for name in ("labels", "columns", "accuracy"):
        if not isinstance(state.get(name), dict):
            raise ValueError(f"{path} lacks the {name} of its table")
        getattr(made, name).load_state_dict(state[name])
    made._learner = load_learner(path, trust_code=trust_code)
    width = (made.columns.width,) if made.columns.settled else made.learner.input_shape
    classes = made.learner.method.model.seen.classes()
    if made.learner.input_shape != width or (len(classes) and int(classes[-1]) >= len(made.labels)):
        raise ValueError(f"{path} has a learner that does not fit the labels and columns of its table")
    made._name_columns()
    return made


def check_weight(value: Any, column: str, where: str) -> None:
    """Raise BadRow unless `value` is the weight of a row.

    Example:
        >>> check_weight(-1.0, "share", "row 7")
        Traceback (most recent call last):
        ...
        holdfast.columns.BadRow: row 7: found -1.0 in column 'share', expected a weight: a number from 0
    """
    try:
        is_weight = not is_missing(value) and 0 <= float(value) <= MAX_WEIGHT
    except (TypeError, ValueError):
        is_weight = False
    if not is_weight:
        raise BadRow(f"{where}: found {value!r:.40} in column '{column}', expected a weight: a number from 0")


def as_rows(given: Any) -> Iterator[Mapping[str, Any]]:
    """Give the rows of a frame of pandas, of a dict of columns, or of an iterator of dicts.

    Example:
        >>> list(as_rows({"a": [1, 2], "b": ["x", "y"]}))
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}]
    """
    if hasattr(given, "to_dict") and hasattr(given, "columns"):  # a frame, of pandas or the like
        names = [str(name) for name in given.columns]
        if twice := [name for name, n in Counter(names).items() if n > 1]:
            raise ValueError(f"the frame has the column '{twice[0]}' twice: give columns different names")
        for values in given.itertuples(index=False, name=None):
            yield dict(zip(names, (None if _is_pandas_missing(value) else value for value in values), strict=True))
        return
    if isinstance(given, Mapping):
        columns = {str(name): list(values) for name, values in given.items()}
        if len({len(values) for values in columns.values()}) > 1:
            raise ValueError("the columns have different lengths: give each as many values")
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))
        return
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise ValueError(f"rows are a {type(given).__name__}: give a frame, a dict of columns, or dicts")
    for row in given:
        if not isinstance(row, Mapping):
            raise ValueError(f"a row is a {type(row).__name__}: give each as a dict from column to value")
        yield row


def _is_pandas_missing(value: Any) -> bool:
    return type(value).__name__ in ("NAType", "NaTType")


def _label(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value
