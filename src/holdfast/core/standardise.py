"""Running standardisation of columns."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.core.state import State, Stateful, check_tensor

LIMIT = 8.0  # the largest number that comes out, in standard deviations
OUTLIER = 10.0  # standard deviations beyond which a value counts as this far when the columns are measured
ENOUGH = 30  # samples after which outliers are recognised
HORIZON = 100_000.0  # samples that are looked back over, at most
ROUNDING = 1e-7  # of the mean: a smaller spread is that of rounding in float32


class Standardise(Stateful):
    """Running mean and standard deviation of each column, by which inputs are made comparable.

        z_j = clip((x_j - μ_j) / σ_j, -8, 8)

    Batches are merged in float64 (Chan, Golub and LeVeque, The American Statistician 1983), which is stable for columns
    with a large mean. A value beyond ten standard deviations counts as ten, so one outlier does not flatten a column;
    a column whose scale has really changed is followed within some batches. A constant column becomes 0.

    Example:
        >>> standardise = Standardise(2)
        >>> standardise.update(torch.tensor([[1.0, 500.0], [3.0, 700.0]]))
        >>> standardise(torch.tensor([[3.0, 600.0]]))
        tensor([[1., 0.]])
    """

    replaced: ClassVar[frozenset[str]] = frozenset({"mean", "squares"})

    count: float
    mean: Tensor
    squares: Tensor

    def __init__(self, n_columns: int) -> None:
        self.count = 0.0
        self.mean = torch.zeros(n_columns, dtype=torch.float64)
        self.squares = torch.zeros(n_columns, dtype=torch.float64)  # Σ (x - μ)²

    @property
    def spread(self) -> Tensor:
        """(n_columns,) standard deviations in float64; 1 for a constant column."""
        spread = (self.squares / max(self.count, 1.0)).sqrt()
        return torch.where(spread > ROUNDING * self.mean.abs(), spread, 1.0)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take in the samples of a batch (n, n_columns). Nothing that a copy shares is written over."""
        values = x.detach().to(self.mean)
        if self.count >= ENOUGH:
            known = self.squares > 0
            reach = torch.where(known, OUTLIER * self.spread, math.inf)
            values = torch.minimum(torch.maximum(values, self.mean - reach), self.mean + reach)
        n = len(values)
        mean = values.mean(dim=0)
        total = self.count + n
        shift = mean - self.mean
        squares = self.squares + (values - mean).square().sum(dim=0) + shift.square() * (self.count * n / total)
        self.mean = self.mean + shift * (n / total)
        self.count = min(total, HORIZON)
        self.squares = squares * (self.count / total)

    def __call__(self, x: Tensor) -> Tensor:
        """Return (n, n_columns), the inputs in standard deviations, in the dtype in which they come."""
        mean, spread = self.mean.to(x.device), self.spread.to(x.device)
        return ((x.double() - mean) / spread).clamp_(-LIMIT, LIMIT).to(x.dtype)

    def constant_columns(self) -> list[int]:
        """Return the columns that have had one value so far."""
        constant: list[int] = (
            (self.squares <= (ROUNDING * self.mean).square() * self.count).nonzero().flatten().tolist()
        )
        return constant

    @classmethod
    def of(cls, state: State) -> Standardise:
        """Return the one that a state was saved of; ValueError if it is none."""
        mean = state.get("mean") if isinstance(state, dict) else None
        if not isinstance(mean, Tensor) or mean.ndim != 1:
            raise ValueError("the saved standardisation has no row of means")
        made = cls(len(mean))
        made.load_state_dict(state)
        return made

    def load_state_dict(self, state: State) -> None:
        """Restore; raise ValueError for numbers that no stream leads to."""
        if not isinstance(state, dict) or state.keys() != {"count", "mean", "squares"}:
            raise ValueError("the saved standardisation does not have its three parts")
        for name in ("mean", "squares"):
            check_tensor(state[name], like=getattr(self, name), name=f"{name} of the saved standardisation")
            if state[name].shape != self.mean.shape or state[name].dtype != self.mean.dtype:
                raise ValueError(f"the saved standardisation is not one of {len(self.mean)} columns")
        count = state["count"]
        if not isinstance(count, float) or not 0 <= count <= HORIZON or bool((state["squares"] < 0).any()):
            raise ValueError("the saved standardisation counts below 0 or beyond its horizon")
        super().load_state_dict(state)
