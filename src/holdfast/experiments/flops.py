"""Floating-point operations of whatever runs inside a block: products of matrices, convolutions, factorisations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


@dataclass
class Count:
    """Number of operations so far; a product and a sum are two."""

    flops: int = 0


@contextmanager
def counting() -> Iterator[Count]:
    """Context manager: count the operations inside, those of the way back included.

    Counted are products of matrices, convolutions, factorisations of matrices and triangular systems. Sums,
    normalisations and activations are not: in networks they are a few per cent. Results keep their bits.

    Example:
        >>> with counting() as count:
        ...     product = torch.ones(2, 3) @ torch.ones(3, 5)
        >>> count.flops
        60
    """
    count = Count()
    with _Counter(count):
        yield count


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, count: Count) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = count
        self.formulas = _formulas()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if (formula := self.formulas.get(func._overloadpacket)) is not None:
            self.count.flops += int(formula(*args, **(kwargs or {}), out_val=out))
        return out


def _formulas() -> dict[Any, Callable[..., int]]:
    """Return the operations by kind: torch's own for products and convolutions, and ours for factorisations."""
    from torch.utils.flop_counter import flop_registry

    in_place = {aten.addmm_: flop_registry[aten.addmm], aten.baddbmm_: flop_registry[aten.baddbmm]}
    return {**flop_registry, **in_place, **_OURS}


def _of_square(share: float) -> Callable[..., int]:
    """Return the formula `share` · n³ for a matrix (…, n, n)."""

    def formula(matrix: Tensor, *_: Any, **__: Any) -> int:
        return round(share * math.prod(matrix.shape[:-2]) * matrix.shape[-1] ** 3)

    return formula


def _of_sides(right: Tensor, triangular_systems: int) -> int:
    """Return n² for each of the right sides (n, k) and each triangular system."""
    n = right.shape[-2]
    return triangular_systems * n * right.numel()


_OURS: dict[Any, Callable[..., int]] = {
    aten.mv: lambda a, *_, **__: 2 * a.numel(),
    aten.linalg_cholesky_ex: _of_square(1 / 3),
    aten.cholesky_inverse: _of_square(2 / 3),
    aten.linalg_solve_triangular: lambda _, b, *__, left=True, **___: _of_sides(b if left else b.mT, 1),
    aten.cholesky_solve: lambda b, *_, **__: _of_sides(b, 2),
    aten._linalg_eigh: _of_square(9),  # Golub and Van Loan, "Matrix Computations", with all vectors
}
