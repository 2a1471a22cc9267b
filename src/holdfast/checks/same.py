"""Equality of two states to the bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holdfast.checks._base import expect


def assert_same(left: Any, right: Any, path: str = "state") -> None:
    """Raise Failed, naming the place, unless the two trees are equal to the bit.

    Example:
        >>> assert_same({"step": 1}, {"step": 1})
        >>> assert_same({"step": 1}, {"step": 2})
        Traceback (most recent call last):
        ...
        holdfast.checks._base.Failed: state['step']: 1 and 2
    """
    expect(type(left) is type(right), f"{path}: {type(left)} and {type(right)}")
    if isinstance(left, dict):
        expect(list(left) == list(right), f"{path}: keys {list(left)} and {list(right)}")
        for key in left:
            assert_same(left[key], right[key], f"{path}[{key!r}]")
    elif isinstance(left, list | tuple):
        expect(len(left) == len(right), f"{path}: {len(left)} and {len(right)} items")
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_same(a, b, f"{path}[{i}]")
    elif isinstance(left, Tensor):
        expect(left.dtype == right.dtype, f"{path}: {left.dtype} and {right.dtype}")
        expect(left.shape == right.shape, f"{path}: {tuple(left.shape)} and {tuple(right.shape)}")
        expect(torch.equal(_bytes(left), _bytes(right)), f"{path}: other bits")
    else:
        expect(left == right or (left != left and right != right), f"{path}: {left} and {right}")


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)
