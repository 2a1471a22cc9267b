"""Inputs that wait for their labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.labels import Label, plain_label
from holdfast.core.state import Count, State, Stateful
from holdfast.core.undo import Undo


class Waiting(Stateful):
    """A bounded store of inputs by id, from which they are taken once their labels are known.

    The oldest input expires where there is no room. An id that is put again replaces its input.

    Example:
        >>> waiting = Waiting(2)
        >>> waiting.put(["a", "b", "c"], torch.tensor([[1.0], [2.0], [3.0]]))
        >>> waiting.n_expired, waiting.take(["c", "b"]).tolist()
        (1, [[3.0], [2.0]])
    """

    capacity: Annotated[int, Field(ge=1, lt=2**63)]
    n_put: Count
    n_taken: Count
    n_expired: Count

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a store of {capacity} inputs holds nothing: give 1 or more")
        self.capacity = capacity
        self.n_put = 0
        self.n_taken = 0
        self.n_expired = 0
        self._inputs: dict[Label, Tensor] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._inputs)

    def __contains__(self, key: object) -> bool:
        return key in self._inputs

    def keep_for_undo(self, undo: Undo) -> None:
        """Write down which inputs wait: the table of them is replaced and never written over."""
        undo.attributes(self)

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs that wait."""
        return sum(x.nbytes for x in self._inputs.values())

    def put(self, ids: Sequence[Any], x: Tensor) -> None:
        """Keep inputs (n, …) under `ids`, all different; all of them or, whatever is raised, none."""
        keys = checked_ids(ids, len(x))
        inputs, n_expired = self._inputs.copy(), self.n_expired
        for key, sample in zip(keys, x, strict=True):
            inputs.pop(key, None)  # so that it is the newest
            inputs[key] = sample.detach().clone()
        while len(inputs) > self.capacity:
            del inputs[next(iter(inputs))]
            n_expired += 1
        vars(self).update(_inputs=inputs, n_put=self.n_put + len(keys), n_expired=n_expired)  # at one instant

    def look(self, ids: Sequence[Any]) -> Tensor:
        """Return (n, …), the inputs of `ids`, which stay; ValueError names ids of which none waits."""
        keys = checked_ids(ids, None)
        if missing := [key for key in keys if key not in self._inputs]:
            shown = ", ".join(repr(key) for key in missing[:5]) + (" …" if len(missing) > 5 else "")
            raise ValueError(
                f"no input waits under {shown}: it was never predicted with an id, has its label already, or expired "
                f"({self.n_expired:,} did; {self.capacity:,} can wait)"
            )
        return torch.stack([self._inputs[key] for key in keys])

    def take(self, ids: Sequence[Any]) -> Tensor:
        """Return (n, …), the inputs of `ids`, which wait no more."""
        x, inputs = self.look(ids), self._inputs.copy()
        for key in checked_ids(ids, None):
            del inputs[key]
        vars(self).update(_inputs=inputs, n_taken=self.n_taken + len(x))
        return x

    def state_dict(self) -> State:
        inputs = list(self._inputs.values())
        return {
            "capacity": self.capacity,
            "n_put": self.n_put,
            "n_taken": self.n_taken,
            "n_expired": self.n_expired,
            "ids": list(self._inputs),
            "x": torch.stack(inputs) if inputs else None,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore; raise ValueError for inputs that do not fit their ids."""
        if not isinstance(state, dict) or not {"ids", "x"} <= state.keys():
            raise ValueError("the saved store of inputs that wait is not whole")
        ids, x = state["ids"], state["x"]
        n = len(x) if isinstance(x, Tensor) and x.ndim > 1 else 0
        if not isinstance(ids, list) or len(ids) != n or (x is not None and not n):
            raise ValueError("the saved inputs that wait do not fit their ids")
        keys = checked_ids(ids, n) if n else []
        made = Waiting(1)
        inputs = made.__dict__.pop("_inputs")
        Stateful.load_state_dict(made, {name: value for name, value in state.items() if name not in ("ids", "x")})
        if n > made.capacity:
            raise ValueError(f"{n} inputs wait where {made.capacity} can")
        inputs.update(zip(keys, x.clone() if n else [], strict=True))
        self.__dict__.update(vars(made), _inputs=inputs)


def checked_ids(ids: Sequence[Any], n: int | None) -> list[Label]:
    """Return ids as plain values; ValueError unless they are `n`, and all different."""
    if isinstance(ids, str | bytes):
        raise ValueError(f"ids are the text {ids!r}: give one id a sample, as in ids=[{ids!r}]")
    keys = [plain_label(key) for key in (ids.tolist() if isinstance(ids, Tensor) else ids)]
    if n is not None and len(keys) != n:
        raise ValueError(f"{len(keys)} ids for {n} samples: give one a sample")
    if not keys:
        raise ValueError("no ids: give at least one")
    if len(set(keys)) < len(keys):
        twice = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise ValueError(f"the id {twice!r} is there twice: give each sample an id of its own")
    return keys
