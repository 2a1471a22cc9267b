"""Bytes that a learner keeps between two batches, by kind."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.memory.storage import Memory
from holdfast.methods._base import Method, ReplayMethod

Report = dict[str, int]
_OWN_KIND = ("model", "optimizer", "memory", "weight_average", "selection")


def memory_report(method: Method, undo: object) -> Report:
    """Return the bytes of everything that a method keeps between two batches, by kind; nothing is counted twice.

    Args:
        undo: the log of transactions, which may hold copies of weights.
    """
    counter = _Counter()
    model, report = method.model, Report()
    report["weights of the backbone"] = counter.of_all(model.backbone.state_dict(keep_vars=True).values())
    report["weights of the head"] = counter.of_all(model.head.parameters())
    report["gradients"] = counter.of_all(parameter.grad for parameter in method.parameters())
    report["classes seen"] = model.seen.nbytes
    report["optimizer"] = counter.of_all(method.optimizer.state.values())
    report["spare weights"] = counter.of(undo)
    report["average of weights"] = counter.of(method.weight_average)
    if isinstance(method, ReplayMethod):
        for name, column in method.memory.columns.items():
            report[f"memory, {name}"] = counter.of(column)
        report["selection"] = counter.of(method.selection)
    for name, value in vars(method).items():
        if name not in _OWN_KIND and not isinstance(value, bool | int | float | str):
            report[f"{type(method).__name__}, {name}"] = counter.of(value)
    return {kind: nbytes for kind, nbytes in report.items() if nbytes}


class _Counter:
    """Count of bytes in trees of objects, each object and each storage once."""

    def __init__(self) -> None:
        self._counted: set[int] = set()
        self._kept: list[Any] = []  # so that no id is given to two objects

    def of_all(self, values: Iterable[Any]) -> int:
        """Return the bytes of several values."""
        return sum(map(self.of, values))

    def of(self, value: Any) -> int:
        """Return the bytes of a value and of what it refers to."""
        if value is None or isinstance(value, bool | str | type) or id(value) in self._counted:
            return 0
        if isinstance(value, Tensor):
            return self._of_storage(value)
        self._counted.add(id(value))
        self._kept.append(value)
        if isinstance(value, int | float):
            return sys.getsizeof(value)
        if isinstance(value, np.ndarray):
            return value.nbytes if value.base is None else 0
        if isinstance(value, torch.Generator):
            return value.get_state().nbytes
        if isinstance(value, nn.Module):
            return self.of(list(value.parameters())) + self.of(list(value.buffers()))
        if isinstance(value, dict):
            # A weak dictionary, and one by tensors, has keys that are counted elsewhere.
            return sys.getsizeof(value) + sum(self.of(item) for item in value.values())
        if isinstance(value, list | tuple | set | frozenset):
            return sys.getsizeof(value) + sum(map(self.of, value))
        return self._of_object(value)

    def _of_storage(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        if place in self._counted or not storage.nbytes():
            return 0
        self._counted.add(place)
        return storage.nbytes()

    def _of_object(self, value: Any) -> int:
        if isinstance(value, Memory):
            return self.of(value.columns)
        if hasattr(value, "__slots__"):
            return sum(self.of(getattr(value, name, None)) for name in value.__slots__)
        if hasattr(value, "data") and hasattr(value, "keyrefs"):  # a weak dictionary
            return sum(self.of(item) for item in list(value.values()))
        return sum(map(self.of, list(vars(value).values()))) if hasattr(value, "__dict__") else 0
