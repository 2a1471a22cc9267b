"""Changes to how a method with a memory learns or predicts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from holdfast.core.augment import contrastive_views, crop_and_flip, rand_augment
from holdfast.core.batch import Batch
from holdfast.methods._base import Method, ReplayMethod

Augmentation = Literal["none", "shift", "contrastive", "randaugment"]


@dataclass(kw_only=True, eq=False)
class Wrapper(Method):
    """Base class of wrappers, which stand around a method.

    `around` makes one class of the two, with the wrapper before the method in the order of its bases. So the wrapper
    overrides, and reaches the method by `super()`. The fields of both are its options.

    Example:
        >>> from holdfast.methods.er import ER
        >>> @dataclass(kw_only=True, eq=False)
        ... class Halved(Wrapper):
        ...     share: float = 0.5
        ...
        ...     def step(self, loss):
        ...         return super().step(self.share * loss)
        >>> Halved.around(ER).__name__
        'ERHalved'
    """

    @classmethod
    def refusal(cls, method: type[Method]) -> str:
        """Return why the wrapper cannot stand around `method`; '' if it can."""
        if issubclass(method, cls):
            return "it has that wrapper already"
        own = {each.name for each in fields(cls) if each.init} - {each.name for each in fields(ReplayMethod)}
        both = sorted(own & {each.name for each in fields(method) if each.init})
        return f"both have the option {', '.join(both)}" if both else ""

    @classmethod
    def around(cls, method: type[Method]) -> type[Method]:
        """Return the class of `method` with this wrapper around it."""
        merged: dict[str, Any] = {
            "derived": cls.derived | method.derived,
            "__module__": method.__module__,
            "__doc__": method.__doc__,
        }
        return dataclass(kw_only=True, eq=False)(type(f"{method.__name__}{cls.__name__}", (cls, method), merged))


@dataclass(kw_only=True, eq=False)
class ReplayWrapper(Wrapper, ReplayMethod):
    """Base class of wrappers around methods with a memory, some of which learn views of samples.

    Example:
        >>> from holdfast.methods.finetune import Finetune
        >>> ReplayWrapper.refusal(Finetune)
        'it has no memory'
    """

    derived: ClassVar[frozenset[str]] = frozenset({"_raw"})
    needs_batches: ClassVar[bool] = False  # stands only around methods that learn and remember a batch together

    _raw: Batch | None = field(default=None, init=False)  # the samples that are learned now, as they came

    @classmethod
    def refusal(cls, method: type[Method]) -> str:
        if not issubclass(method, ReplayMethod):
            return "it has no memory"
        if reason := super().refusal(method):
            return reason
        return "it does not learn a batch beside replayed samples" if cls.needs_batches and not method.by_batch else ""

    @contextmanager
    def storing(self, batch: Batch) -> Iterator[None]:
        """Context manager: whatever the method learns inside, memory gets the samples of `batch` as they came."""
        outermost = self._raw is None
        if outermost:
            self._raw = batch
        try:
            yield
        finally:
            if outermost:
                self._raw = None

    def remember(self, batch: Batch) -> None:
        super().remember(batch if self._raw is None else replace(batch, x=self._raw.x))


def augmented(x: Tensor, how: Augmentation, rng: torch.Generator) -> Tensor:
    """Return a view of each input (n, …); the same inputs if there is nothing to be done."""
    if how == "none":
        return x
    return {"shift": crop_and_flip, "contrastive": contrastive_views, "randaugment": rand_augment}[how](x, rng)
