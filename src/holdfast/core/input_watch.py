"""Warnings about inputs that look like a mistake."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.core.standardise import Standardise
from holdfast.core.state import State, Stateful


class InputWarning(UserWarning):
    """Inputs are taken as they are, but look like a mistake; the message names the column or the axis."""


MANY = 1000.0  # times: columns this different in scale are hard to learn from as they are
LARGE = 100.0  # a spread or a mean beyond is hard to learn from
LOOKED_AT = 100  # samples after which columns are judged
DUPLICATES = 0.5  # the share of rows that are near to another
VALUES = 10  # of a column that holds measurements: more. Rows of categories alone repeat by nature
COMPARED = 4096  # numbers of a sample, at most, by which rows are compared
CHANNELS = (1, 3, 4)


class InputWatch(Stateful):
    """Look at the first samples of a stream and warn once of each thing that looks like a mistake.

    It judges what comes and changes nothing. After the first samples it costs nothing.
    """

    n_seen: int
    warned: list[str]

    def __init__(self, *, standardised: bool) -> None:
        self.standardised = standardised
        self.n_seen = 0
        self.warned = []
        self.columns: Standardise | None = None
        self.rows: list[Tensor] = []

    def look(self, x: Tensor, names: Sequence[str] = ()) -> None:
        """Take in inputs (n, …), and warn.

        Args:
            names: of the columns, where they have some. A column of a table may stand in several columns of inputs.
        """
        if self.n_seen >= LOOKED_AT:
            return
        if self.n_seen == 0 and x.ndim == 4 and channels_last(tuple(x.shape[1:])):
            height, width, channels = x.shape[1:]
            self._warn(
                "axis",
                f"samples of shape {(height, width, channels)} are taken as {height} channels of {width}x{channels} "
                "pixels: if axis 3 holds the channels, give x.transpose(0, 3, 1, 2), or x.permute(0, 3, 1, 2)",
            )
        self.n_seen += len(x)
        self.rows = [*self.rows, x.flatten(1)[:LOOKED_AT, :COMPARED].float()]
        if self.n_seen >= LOOKED_AT:
            self._judge_rows(torch.cat(self.rows), names)
            self.rows = []
        if x.ndim == 2 and x.is_floating_point():
            if self.columns is None:
                self.columns = Standardise(x.shape[1])
            self.columns.update(x)
            if self.n_seen >= LOOKED_AT:
                self._judge_columns(self.columns, names)
        if self.n_seen >= LOOKED_AT:
            self.columns = None

    def _judge_rows(self, rows: Tensor, names: Sequence[str]) -> None:
        n_near = near_duplicates(rows)
        # A column of numbers stands in one column of inputs, or in two where some are missing; a category in more.
        measured = [j for j in range(rows.shape[1]) if not names or names.count(names[j]) <= 2]
        if n_near > DUPLICATES * len(rows) and any(len(torch.unique(rows[:, j])) > VALUES for j in measured):
            self._warn("rows", f"{n_near} of the first {len(rows)} rows are near-duplicates of rows above them")

    def _judge_columns(self, columns: Standardise, names: Sequence[str]) -> None:
        constant = columns.constant_columns()
        if told := _whole(constant, names):
            self._warn("constant", f"{_columns(told, names)} had one value in the first {self.n_seen} samples")
        varying = torch.ones_like(columns.mean, dtype=torch.bool)
        varying[constant] = False
        if self.standardised or not bool(varying.any()):
            return
        size = torch.maximum(columns.spread, columns.mean.abs())
        smallest = columns.spread[varying].min()
        unscaled = varying & ((size > LARGE) | (columns.spread > MANY * smallest))
        if bool(unscaled.any()):
            worst = unscaled.nonzero().flatten().tolist()
            top = max(worst, key=lambda j: float(size[j]))
            self._warn(
                "unscaled",
                f"{_columns(worst, names)} {'are' if len(worst) > 1 else 'is'} unscaled (mean "
                f"{float(columns.mean[top]):.4g}, standard deviation {float(columns.spread[top]):.4g}): "
                "build the learner with standardise=True, or scale the columns",
            )

    def _warn(self, what: str, message: str) -> None:
        if what not in self.warned:
            self.warned = [*self.warned, what]
            warnings.warn(message, InputWarning, stacklevel=4)

    def state_dict(self) -> State:
        return {"n_seen": self.n_seen, "warned": list(self.warned)}

    def load_state_dict(self, state: State) -> None:
        """Restore; columns and rows are judged by the samples that come after."""
        n_seen, warned = state.get("n_seen"), state.get("warned")
        if type(n_seen) is not int or n_seen < 0 or not isinstance(warned, list):
            raise ValueError("the saved watch of inputs has no count")
        self.n_seen, self.warned, self.columns = n_seen, [str(what) for what in warned], None
        self.rows = []


def channels_last(shape: tuple[int, ...]) -> bool:
    """Tell if one sample of `shape` looks like a picture with its channels last.

    Example:
        >>> channels_last((32, 32, 3)), channels_last((3, 32, 32))
        (True, False)
    """
    return len(shape) == 3 and shape[2] in CHANNELS and shape[0] not in CHANNELS and min(shape[:2]) >= 8


def near_duplicates(x: Tensor) -> int:
    """Return the number of rows of (n, …) that are near to a row above: within 1/1000 of each column's largest."""
    rows = x[:256].flatten(1).float()
    if len(rows) < 2:
        return 0
    steps = rows.abs().amax(dim=0) * 1e-3
    grid = (rows / torch.where(steps > 0, steps, 1.0)).round()
    return len(rows) - len(torch.unique(grid, dim=0))


def _whole(numbers: list[int], names: Sequence[str]) -> list[int]:
    """Return the first of `numbers` for each name whose columns are all among them."""
    if not names:
        return numbers
    others = {name for j, name in enumerate(names) if j not in set(numbers)}
    return list({names[j]: j for j in reversed(numbers) if names[j] not in others}.values())[::-1]


def _columns(numbers: list[int], names: Sequence[str]) -> str:
    """Return columns as they are named to a user, the first of each name."""
    if names:
        numbers = sorted({names[j]: j for j in reversed(numbers)}.values())
    shown = [f"'{names[j]}'" if names else str(j) for j in numbers[:5]]
    rest = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"column{'s' if len(numbers) > 1 else ''} {', '.join(shown)}{rest}"
