"""Turn rows with named columns into vectors of numbers."""

from __future__ import annotations

import datetime
import math
import re
import statistics
import warnings
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.input_watch import InputWarning
from holdfast.core.state import Count, State, Stateful

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})  # texts, in small letters, for a missing value
MOST_PLACES = 16  # of a column of categories
LEAST_PLACES = 4
RATES = 8  # numbers that say which classes come with a category
SLOTS = 4096  # categories of a column whose classes are counted; others share these slots by a hash
SMOOTHING = 1.0  # rows that the classes of all categories count for
MEMORY = 100  # rows of a category that its classes are averaged over, about
LOOKED_AT = 100  # rows after which a column is judged
LARGEST = 1e15  # distance from the origin of a column
OFFSET = 2.0**20  # beyond, a float32 may not tell neighbouring values apart
HEAVY = 1000.0  # times the median: a column with values this large is compressed
_MANY = (list, tuple, dict, set)
NUMBER_LIKE = re.compile(r"[-+]?[$€£¥]?\s?[-+]?\d[\d.,'\s]*[$€£¥%]?")


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
    return isinstance(value, float | np.floating | Decimal) and math.isnan(value)


class Columns(Stateful):
    """Turns rows with named columns into vectors of numbers.

    | column | becomes |
    |---|---|
    | numbers, truth values, dates that are no text | the number; the running mean of its column where it is missing |
    | numbers, some missing in the first rows | also 1 where it is missing, else 0 |
    | texts | up to 16 places, one for each text in the order in which they come; later texts share them by a hash |
    | texts, most of them different in the first rows | also 8 numbers: the share of classes that came with the text |
    | nothing in the first rows | a number, 1 where it is missing, and 4 places for texts |

    The first rows that are learned decide the kinds. A text in a column of numbers makes a bad row. Large numbers that
    lie close together, such as times, count from the median of the first rows. A column whose first rows have values
    beyond 1,000 medians is compressed: v becomes asinh(v / median).
    """

    names: list[str]
    categories: dict[str, list[str]]
    places: dict[str, Count]
    rates: dict[str, Tensor]
    flagged: list[str]
    counts: dict[str, Count]
    means: dict[str, float]
    origins: dict[str, int | float]
    scales: dict[str, float]
    n_rows: Count

    def __init__(self) -> None:
        self.names = []  # in the order of the vector
        self.categories = {}  # texts that have a place of their own, by column
        self.places = {}  # by column of categories
        self.rates = {}  # (SLOTS, 1 + RATES) by column: rows of a category, and the share of classes
        self.flagged = []  # columns of numbers with a second one for missing values
        self.counts = {}  # of numbers, by column
        self.means = {}
        self.origins = {}  # the number that becomes 0, by column
        self.scales = {}  # the number whose size becomes usual, by column that is compressed
        self.n_rows = 0  # learned
        self.warned: list[str] = []

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(_completed(state))
        numbers, categories = self.counts.keys(), self.categories.keys()
        both = numbers & categories
        is_whole = len(set(self.names)) == len(self.names) and {*self.names} == {*numbers, *categories}
        is_whole &= self.means.keys() == numbers and numbers >= {*self.flagged, *self.origins, *self.scales}
        is_whole &= self.places.keys() == categories and categories >= self.rates.keys() and both <= {*self.flagged}
        is_whole &= all(1 <= n <= MOST_PLACES and len(self.categories[name]) <= n for name, n in self.places.items())
        plain = [*self.means.values(), *self.origins.values(), *self.scales.values()]
        is_whole &= all(abs(number) < 2**64 for number in plain) and all(scale > 0 for scale in self.scales.values())
        if not is_whole or not all(map(_are_rates, self.rates.values())):
            raise ValueError("the saved columns do not fit each other")

    @property
    def settled(self) -> bool:
        """Tell if the kinds are decided."""
        return bool(self.names)

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return len(self.counts) + len(self.flagged) + sum(self.places.values()) + RATES * len(self.rates)

    def settle(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Decide the kinds by the first rows."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        if not names:
            raise BadRow("the first rows have no columns beside the label: give at least one")
        for name in names:
            there = [value for row in rows if not is_missing(value := row.get(name))]
            if there and any(_number(value) is None for value in there):
                self._settle_texts(name, there)
                continue
            self.counts[name], self.means[name] = 0, 0.0
            if len(there) < len(rows):
                self.flagged.append(name)
            if there:
                self._settle_numbers(name, [_number(value) for value in there])
            else:
                self.categories[name], self.places[name] = [], LEAST_PLACES
        self.names = names

    def check(self, row: Mapping[str, Any], where: str) -> None:
        """Raise BadRow for a row that does not fit the columns."""
        known = set(self.names)
        if unknown := [str(name) for name in row if name not in known]:
            raise BadRow(f"{where}: found the column '{unknown[0]}', which the first rows do not have: leave it out")
        for name in self.names:
            value = row.get(name)
            if isinstance(value, _MANY) or (isinstance(value, np.ndarray | Tensor) and value.ndim):
                raise BadRow(
                    f"{where}: found a {type(value).__name__} in column '{name}', expected a number or a text: give "
                    "each number a column of its own"
                )
            if name not in self.counts or is_missing(value):
                continue
            number = _number(value)
            if number is None:
                if name in self.categories:
                    continue
                raise BadRow(f"{where}: found {_shown(value)} in column '{name}', expected a number")
            if not (abs(number) < 2**64 and abs(number - self.origins.get(name, 0)) <= LARGEST):
                raise BadRow(f"{where}: found {_shown(value)} in column '{name}', expected a finite number below 1e15")

    def learn(self, rows: Sequence[Mapping[str, Any]], classes: Sequence[int] = ()) -> None:
        """Take in rows that were learned: the means of numbers, new categories, and the classes that come with them.

        Args:
            classes: of the rows; without them no classes are counted.
        """
        for name in self.counts:
            for row in rows:
                number = self._size(name, row.get(name))
                if number is None:
                    if name not in self.flagged and name in row:
                        self._warn(
                            name, f"column '{name}' has missing values, and had none at first: its mean is taken"
                        )
                    continue
                self.counts[name] += 1
                self.means[name] += (number - self.means[name]) / self.counts[name]
        for name, known in self.categories.items():
            texts = [self._category(name, row) for row in rows]
            new = dict.fromkeys(text for text in texts if text is not None and text not in known)
            if new and len(known) < self.places[name]:
                self.categories[name] = [*known, *new][: self.places[name]]
            if name in self.rates and classes:
                self.rates[name] = _counted(self.rates[name], texts, classes)
        before, self.n_rows = self.n_rows, self.n_rows + len(rows)
        if before < LOOKED_AT <= self.n_rows:
            self._judge()

    def vectors(self, rows: Sequence[Mapping[str, Any]]) -> Tensor:
        """Return (n, width) rows as vectors, float32."""
        return torch.tensor([self._vector(row) for row in rows], dtype=torch.float32)

    def vector_names(self) -> list[str]:
        """Return the column that each number of a vector comes from."""
        found = []
        for name in self.names:
            n_numbers = 1 + (name in self.flagged) if name in self.counts else 0
            found += [name] * (n_numbers + self.places.get(name, 0) + RATES * (name in self.rates))
        return found

    def _settle_numbers(self, name: str, given: Sequence[Any]) -> None:
        numbers = [number for number in given if abs(number) < 2**63]
        middle = statistics.median_low(numbers) if numbers else 0
        if abs(middle) >= OFFSET and 64 * statistics.median(abs(n - middle) for n in numbers) < abs(middle):
            self.origins[name] = middle
            return
        sizes = [abs(float(number)) for number in numbers if number]
        if sizes and max(sizes) > HEAVY * statistics.median(sizes):
            self.scales[name] = statistics.median(sizes)

    def _settle_texts(self, name: str, there: Sequence[Any]) -> None:
        texts = [_text(value) for value in there]
        n_different = len(set(texts))
        self.places[name] = min(max(2 * n_different, LEAST_PLACES), MOST_PLACES)
        self.categories[name] = sorted(set(texts))[: self.places[name]]
        if 3 * n_different > len(texts):
            self.rates[name] = torch.zeros(SLOTS, 1 + RATES)
        alike = [text for text in texts if NUMBER_LIKE.fullmatch(text)]
        if 2 * len(alike) > len(texts) and any(_number(text) is None for text in alike):
            odd = next(text for text in alike if _number(text) is None)
            self._warn(
                name, f"column '{name}' holds texts such as {odd!r}, which count as categories: write plain numbers"
            )

    def _vector(self, row: Mapping[str, Any]) -> list[float]:
        numbers: list[float] = []
        for name in self.names:
            value = row.get(name)
            if name in self.counts:
                number = self._size(name, value)
                numbers.append(self.means[name] if number is None else number)
                if name in self.flagged:
                    numbers.append(float(number is None))
            if name not in self.categories:
                continue
            text, known = self._category(name, row), self.categories[name]
            places = [0.0] * self.places[name]
            if text is not None:
                places[known.index(text) if text in known else _hashed(text, len(places))] = 1.0
            numbers += places
            if name in self.rates:
                numbers += [0.0] * RATES if text is None else self.rates[name][_hashed(text, SLOTS), 1:].tolist()
        return numbers

    def _size(self, name: str, value: Any) -> float | None:
        """Return the number of a column as it stands in a vector; None where it is missing or a text."""
        number = None if is_missing(value) else _number(value)
        if number is None:
            return None
        if name in self.origins:
            number -= self.origins[name]
        return math.asinh(number / self.scales[name]) if name in self.scales else float(number)

    def _category(self, name: str, row: Mapping[str, Any]) -> str | None:
        """Return the text of a column; None where it is missing, or a number of a column that takes both."""
        value = row.get(name)
        if is_missing(value) or (name in self.counts and _number(value) is not None):
            return None
        return _text(value)

    def _judge(self) -> None:
        """Warn of columns in which nearly each row has another text."""
        for name, rates in self.rates.items():
            if int((rates[:, 0] > 0).sum()) > 0.9 * self.n_rows:
                self._warn(
                    name,
                    f"column '{name}' has another text in nearly each row: drop it if it is a name, and turn dates "
                    "into numbers",
                )

    def _warn(self, name: str, message: str) -> None:
        if name not in self.warned:
            self.warned.append(name)
            warnings.warn(message, InputWarning, stacklevel=4)


def _completed(state: State) -> State:
    """Return a state with what files from before it was there lack."""
    if not isinstance(state, dict) or "places" in state or not isinstance(state.get("categories"), dict):
        return state
    known = {name: len(texts) or MOST_PLACES for name, texts in state["categories"].items() if isinstance(texts, list)}
    return {**state, "places": known, "rates": {}, "origins": {}, "scales": {}, "n_rows": LOOKED_AT}


def _are_rates(saved: Tensor) -> bool:
    if saved.shape != (SLOTS, 1 + RATES) or saved.dtype != torch.float32:
        return False
    return bool((saved >= 0).all()) and bool((saved[:, 0] <= MEMORY).all()) and bool((saved[:, 1:] <= 1).all())


def _counted(rates: Tensor, texts: Sequence[str | None], classes: Sequence[int]) -> Tensor:
    """Return rates with the classes of more rows.

    The share of a category begins at the mean of all categories, and moves by 1 / (1 + n) with its n-th row.
    """
    known = rates[rates[:, 0] > 0]
    usual = known[:, 1:].mean(dim=0) if len(known) else torch.full((RATES,), 1 / RATES)
    rates = rates.clone()
    for text, c in zip(texts, classes, strict=True):
        if text is None:
            continue
        row = rates[_hashed(text, SLOTS)]
        if not row[0]:
            row[1:] = usual
        row[0] = min(float(row[0]) + 1, MEMORY)
        came = torch.zeros(RATES)
        came[c % RATES] = 1.0
        row[1:].lerp_(came, 1 / (SMOOTHING + float(row[0])))
    return rates


def _hashed(text: str, n: int) -> int:
    return zlib.crc32(text.encode(errors="surrogatepass")) % n


def _number(value: Any) -> int | float | None:
    """Return a value as a finite number; None for anything else. Dates become seconds."""
    if isinstance(value, bool | int | np.integer | np.bool_):
        return int(value)
    if isinstance(value, datetime.date):
        moment = value if isinstance(value, datetime.datetime) else datetime.datetime(*value.timetuple()[:3])
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    if not isinstance(value, str | float | np.floating | Decimal):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    if not isinstance(value, str):
        return number
    if "_" in value or not math.isfinite(number):
        return None
    digits = value.strip()
    return int(digits) if 2**53 <= abs(number) <= LARGEST**2 and digits.lstrip("+-").isdigit() else number


def _text(value: Any) -> str:
    return str(value).strip()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
