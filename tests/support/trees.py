"""Any state there can be: trees of dicts, lists and tuples with plain values and tensors at their ends."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
VIEWS = {
    "as it is": lambda tensor: tensor,
    "turned": lambda tensor: tensor.mT if tensor.ndim >= 2 else tensor,
    "every second": lambda tensor: tensor[::2] if tensor.ndim else tensor,
    "repeated": lambda tensor: tensor.unsqueeze(0).expand(2, *tensor.shape),
}


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """A tensor of any dtype with any bits, whole or a view of another."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    n_bytes = math.prod(shape) * dtype.itemsize
    raw = bytearray(draw(st.binary(min_size=n_bytes, max_size=n_bytes)))
    if dtype == torch.bool:
        raw = bytearray(byte % 2 for byte in raw)
    flat = torch.frombuffer(raw, dtype=torch.uint8).view(dtype) if raw else torch.empty(0, dtype=dtype)
    return draw(st.sampled_from(list(VIEWS.values())))(flat.reshape(shape))


plain_values = (
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(st.characters(), max_size=5)
)
keys = st.text(max_size=3) | st.integers() | st.tuples(st.integers(), st.integers())


def trees(ends: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Trees with `ends` at their ends."""
    return st.recursive(
        ends,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(keys, inner, max_size=3)
        ),
        max_leaves=8,
    )


def compact(tree: Any) -> Any:
    """The tree with each view replaced by a tensor of its own, whose bits can be compared."""
    if isinstance(tree, Tensor):
        return tree.clone(memory_format=torch.contiguous_format)
    if isinstance(tree, dict):
        return {key: compact(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(compact(value) for value in tree)
    return tree


states = st.dictionaries(st.text(max_size=3), trees(plain_values | tensors()), max_size=4)
