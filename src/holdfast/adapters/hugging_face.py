"""Data sets of Hugging Face `datasets`, and any rows like theirs, as batches that a learner observes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Encoder = Callable[[list[Any]], Any]  # the values of a column → (n, …)


def batches(
    data: Iterable[Mapping[str, Any]],
    inputs: str | Sequence[str],
    label: str,
    *,
    size: int = 10,
    encode: Encoder | None = None,
) -> Iterator[tuple[Tensor, Any]]:
    """Give inputs (n, …) and labels (n,) of a data set, in its order; the last batch may be smaller.

    Pictures become bytes (channels, height, width), and numbers float32. Labels stay as they are; `label_names` says
    what the numbers among them stand for. Nothing is loaded before its batch.

    Args:
        data: a `Dataset` or `IterableDataset` of the package datasets, or any iterable of dicts.
        inputs: a column of pictures, arrays or numbers; or several columns of numbers, each one number of a vector.
        label: the column of labels.
        size: samples of a batch.
        encode: makes (n, …) of the values of the column; needed for texts.

    Example:
        >>> rows = [{"text": text, "label": len(text) % 2} for text in ("a", "bb", "ccc")]
        >>> for x, y in batches(rows, "text", "label", size=2, encode=lambda texts: [[len(t)] for t in texts]):
        ...     print(x.tolist(), y.tolist())
        [[1.0], [2.0]] [1, 0]
        [[3.0]] [1]
    """
    if size < 1:
        raise ValueError(f"size is {size}: give 1 sample or more")
    names = [inputs] if isinstance(inputs, str) else list(inputs)
    if not names:
        raise ValueError("no columns of inputs are named: give one or more")
    for columns in _columns(data, [*names, label], size):
        if encode is not None:
            x = encode(columns[names[0]] if len(names) == 1 else [columns[name] for name in names])
        elif len(names) == 1:
            x = _stacked(columns[names[0]], names[0])
        else:
            x = np.stack([_stacked(columns[name], name).reshape(len(columns[name])) for name in names], axis=1)
        y = np.asarray(columns[label])
        yield _as_tensor(x), torch.from_numpy(y) if y.dtype.kind in "iu" else columns[label]


def label_names(data: Any, label: str) -> list[str]:
    """Return the names of the classes of a column, in the order of their numbers; none if the data set has no names.

    Example:
        >>> label_names([{"label": 0}], "label")
        []
    """
    features = getattr(data, "features", None) or {}
    return list(getattr(features.get(label), "names", None) or [])


def _columns(data: Any, names: list[str], size: int) -> Iterator[dict[str, list[Any]]]:
    """Yield the values of the columns of `size` rows after the other."""
    if hasattr(data, "iter"):  # which reads several rows at once
        found: Iterator[Mapping[str, Sequence[Any]]] = data.iter(batch_size=size)
        for some in found:
            _check(some, names)
            yield {name: list(some[name]) for name in names}
        return
    rows = iter(data)
    while part := list(islice(rows, size)):
        for row in part:
            _check(row, names)
        yield {name: [row[name] for row in part] for name in names}


def _check(there: Mapping[str, Any], names: list[str]) -> None:
    if missing := [name for name in names if name not in there]:
        raise ValueError(f"the data set has no column '{missing[0]}', only {', '.join(map(repr, there))}")


def _stacked(values: list[Any], name: str) -> NDArray[Any]:
    """Return (n, …), the values of a column; pictures channels first."""
    arrays = [_pixels(value) if hasattr(value, "convert") else np.asarray(value) for value in values]
    if len(shapes := {array.shape for array in arrays}) > 1:
        raise ValueError(
            f"column '{name}' has values of the shapes {sorted(shapes)}: bring them to one, or give encode"
        )
    if arrays[0].dtype.kind not in "biuf":
        raise ValueError(f"column '{name}' has values like {values[0]!r:.40}: give encode, which makes numbers of them")
    stacked = np.stack(arrays)
    return stacked[:, None] if stacked.ndim == 1 else stacked


def _pixels(picture: Any) -> NDArray[Any]:
    """Return (channels, height, width), a picture of Pillow, grey or in colours."""
    array = np.asarray(picture if picture.mode in ("L", "RGB") else picture.convert("RGB"))
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _as_tensor(x: Any) -> Tensor:
    """Return inputs as bytes or float32."""
    tensor = torch.as_tensor(x if isinstance(x, Tensor) else np.ascontiguousarray(x))
    return tensor if tensor.dtype in (torch.uint8, torch.float32) else tensor.float()
