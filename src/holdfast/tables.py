"""Learn tables row by row: mixed columns, labels of any kind, and accuracy on rows before they are learned."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.checkpoint import read_checkpoint, write_checkpoint
from holdfast.core.detectors import Adwin
from holdfast.core.input_watch import InputWarning
from holdfast.core.labels import Label, Labels
from holdfast.core.state import Count, State, Stateful
from holdfast.data.rows import PICTURE
from holdfast.learner import Learner
from holdfast.loading import load_learner

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})  # texts, in small letters, for a missing value
MOST_PLACES = 16  # of a column of categories
BATCH = 10


class BadRow(ValueError):
    """A row that cannot be learned; the message says which and why."""


def is_missing(value: Any) -> bool:
    """Tell if a value of a table stands for nothing.

    Example:
        >>> [is_missing(value) for value in (None, float("nan"), " NA ", 0, "zero")]
        [True, True, True, False, False]
    """
    if value is None:
        return True
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return isinstance(value, float | np.floating) and math.isnan(value)


class Columns(Stateful):
    """Turns rows with named columns into vectors of numbers.

    | column | becomes |
    |---|---|
    | numbers | the number; the running mean of its column where it is missing |
    | numbers, some missing in the first rows | also 1 where it is missing, else 0 |
    | up to 16 categories | one number for each that the first rows have; others share these places by a hash |
    | more categories | 16 places by a hash |

    The first rows that are learned decide the kinds. A text in a column of numbers makes a bad row.
    """

    names: list[str]
    categories: dict[str, list[str]]
    flagged: list[str]
    counts: dict[str, Count]
    means: dict[str, float]

    def __init__(self) -> None:
        self.names = []  # in the order of the vector
        self.categories = {}  # by column, where it is one of categories; none of the list where all are hashed
        self.flagged = []  # columns of numbers with a second one for missing values
        self.counts = {}
        self.means = {}
        self.warned: list[str] = []

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        numbers = self.counts.keys()
        is_whole = len(set(self.names)) == len(self.names) and {*self.names} == {*numbers, *self.categories}
        if not is_whole or self.means.keys() != numbers or not numbers >= {*self.flagged}:
            raise ValueError("the saved columns do not fit each other")
        if numbers & self.categories.keys() or not all(map(math.isfinite, self.means.values())):
            raise ValueError("the saved columns do not fit each other")

    @property
    def settled(self) -> bool:
        """Tell if the kinds are decided."""
        return bool(self.names)

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        places = sum(max(len(known), 1) if known else MOST_PLACES for known in self.categories.values())
        return len(self.names) - len(self.categories) + len(self.flagged) + places

    def settle(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Decide the kinds by the first rows."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        if not names:
            raise BadRow("the first rows have no columns beside the label: give at least one")
        for name in names:
            values = [row.get(name) for row in rows]
            there = [value for value in values if not is_missing(value)]
            if there and not all(_is_number(value) for value in there):
                known = sorted({_text(value) for value in there})
                if len(rows) >= 20 and len(known) > 0.9 * len(there):
                    self._warn(name, f"column '{name}' has another text in nearly each row: drop it if it is a name")
                self.categories[name] = known if len(known) <= MOST_PLACES else []
                continue
            self.counts[name], self.means[name] = 0, 0.0
            if len(there) < len(values):
                self.flagged.append(name)
        self.names = names

    def check(self, row: Mapping[str, Any], where: str) -> None:
        """Raise BadRow for a row that does not fit the columns."""
        known = set(self.names)
        if unknown := [str(name) for name in row if name not in known]:
            raise BadRow(f"{where}: found the column '{unknown[0]}', which the first rows do not have: leave it out")
        for name in self.counts:
            value = row.get(name)
            if is_missing(value):
                continue
            if not _is_number(value):
                raise BadRow(f"{where}: found {_shown(value)} in column '{name}', expected a number")
            if not abs(value if isinstance(value, int) else float(value)) <= 1e15:  # type: ignore[arg-type]
                raise BadRow(f"{where}: found {_shown(value)} in column '{name}', expected a finite number below 1e15")

    def learn(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take the numbers of rows into the running means."""
        for name in self.counts:
            for row in rows:
                value = row.get(name)
                if is_missing(value):
                    if name not in self.flagged and name in row:
                        self._warn(
                            name, f"column '{name}' has missing values, and had none at first: its mean is taken"
                        )
                    continue
                self.counts[name] += 1
                self.means[name] += (float(value) - self.means[name]) / self.counts[name]  # type: ignore[arg-type]

    def vectors(self, rows: Sequence[Mapping[str, Any]]) -> Tensor:
        """Return (n, width) rows as vectors, float32."""
        return torch.tensor([self._vector(row) for row in rows], dtype=torch.float32)

    def vector_names(self) -> list[str]:
        """Return the column that each number of a vector comes from."""
        found = []
        for name in self.names:
            if name in self.categories:
                found += [name] * (len(self.categories[name]) or MOST_PLACES)
            else:
                found += [name] * (2 if name in self.flagged else 1)
        return found

    def _vector(self, row: Mapping[str, Any]) -> list[float]:
        numbers: list[float] = []
        for name in self.names:
            value = row.get(name)
            missing = is_missing(value)
            if name in self.categories:
                known = self.categories[name]
                places = [0.0] * (len(known) or MOST_PLACES)
                if not missing:
                    text = _text(value)
                    place = known.index(text) if text in known else zlib.crc32(text.encode()) % len(places)
                    places[place] = 1.0
                numbers += places
                continue
            numbers.append(self.means[name] if missing else float(value))  # type: ignore[arg-type]
            if name in self.flagged:
                numbers.append(float(missing))
        return numbers

    def _warn(self, name: str, message: str) -> None:
        if name not in self.warned:
            self.warned.append(name)
            warnings.warn(message, InputWarning, stacklevel=4)


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
        self, label: str, *, method: str | None = None, batch: int = BATCH, drop: Sequence[str] = (), **settings: Any
    ) -> None:
        if batch < 1:
            raise ValueError(f"batch is {batch}: give 1 row or more")
        self.label = label
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

    def observe(self, rows: Sequence[Mapping[str, Any]], where: Sequence[str] = ()) -> float:
        """Test and then learn one batch of rows; gives the loss.

        Args:
            where: where each row stands, for messages.
        """
        places = list(where) or [f"row {self.n_rows + i}" for i in range(len(rows))]
        for row, place in zip(rows, places, strict=True):
            self.check(row, place, with_label=True)
        labels = [_label(row[self.label]) for row in rows]
        inputs = [self._inputs_of(row) for row in rows]
        settled = self.columns
        if PICTURE not in inputs[0] and not settled.settled:
            settled = Columns()
            settled.settle(inputs)
            for row, place in zip(inputs, places, strict=True):
                settled.check(row, place)
        self.columns = settled
        x = self._vectors(inputs)
        known = len(self.labels)
        said: list[int | None] = [None] * len(rows) if self._learner is None else self._learner.predict(x).tolist()
        if self._learner is None:
            self._learner = self._made(picture=PICTURE in inputs[0])
        y = self.labels.learn(labels)
        try:
            loss = self._learner.observe(x, y)
        except Exception:
            self.labels.load_state_dict({"known": self.labels.known[:known]})
            raise
        if self.columns.settled:
            self.columns.learn(inputs)
        self.accuracy.update(said, y.tolist())
        self.n_rows += len(rows)
        return loss

    def check(self, row: Mapping[str, Any], where: str, *, with_label: bool) -> None:
        """Raise BadRow for a row that cannot be learned, or of which nothing can be said."""
        if with_label and (self.label not in row or is_missing(row[self.label])):
            there = ", ".join(f"'{name}'" for name in list(row)[:8])
            raise BadRow(f"{where}: found no label in column '{self.label}', only {there}: give the row a label")
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
            | {"n_bad": self.n_bad},
            "labels": self.labels.state_dict(),
            "columns": self.columns.state_dict(),
            "accuracy": self.accuracy.state_dict(),
            "learner": self.learner.state_dict(),
        }

    def _inputs_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {str(name): value for name, value in row.items() if name != self.label and name not in self.drop}

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
    made = TableLearner(table["label"], batch=table["batch"], drop=[str(name) for name in table["drop"]])
    made.n_rows, made.n_bad = table["n_rows"], table["n_bad"]
    for name in ("labels", "columns", "accuracy"):
        if not isinstance(state.get(name), dict):
            raise ValueError(f"{path} lacks the {name} of its table")
        getattr(made, name).load_state_dict(state[name])
    made._learner = load_learner(path, trust_code=trust_code)
    return made


def as_rows(given: Any) -> Iterator[Mapping[str, Any]]:
    """Give the rows of a frame of pandas, of a dict of columns, or of an iterator of dicts.

    Example:
        >>> list(as_rows({"a": [1, 2], "b": ["x", "y"]}))
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}]
    """
    if hasattr(given, "to_dict") and hasattr(given, "columns"):  # a frame, of pandas or the like
        names = [str(name) for name in given.columns]
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


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return True
    if not isinstance(value, str):
        return False
    try:
        return math.isfinite(float(value)) and "_" not in value
    except ValueError:
        return False


def _text(value: Any) -> str:
    return str(value).strip()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
