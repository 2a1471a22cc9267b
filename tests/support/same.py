"""Whether two states are the same to the bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def assert_same(left: Any, right: Any, path: str = "state") -> None:
    """Fail, naming the place, unless the two trees are equal to the bit."""
    assert type(left) is type(right), f"{path}: {type(left)} and {type(right)}"
    if isinstance(left, dict):
        assert list(left) == list(right), f"{path}: keys {list(left)} and {list(right)}"
        for key in left:
            assert_same(left[key], right[key], f"{path}[{key!r}]")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), f"{path}: {len(left)} and {len(right)} items"
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_same(a, b, f"{path}[{i}]")
    elif isinstance(left, Tensor):
        assert left.dtype == right.dtype, f"{path}: {left.dtype} and {right.dtype}"
        assert left.shape == right.shape, f"{path}: {left.shape} and {right.shape}"
        a, b = (_bytes(t) for t in (left, right))
        assert torch.equal(a, b), f"{path}: other bits"
    else:
        assert left == right or (left != left and right != right), f"{path}: {left} and {right}"


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)
