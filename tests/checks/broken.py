"""Parts that break a contract each, for the tests of `holdfast check`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from holdfast.checks.toy import Toy
from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.experiments.probes._base import Probe
from holdfast.memory.retrieval._base import Retrieval
from holdfast.memory.selection._base import Selection
from holdfast.memory.storage import Memory
from holdfast.methods._base import Method, ReplayMethod


@dataclass(kw_only=True, eq=False)
class Raises(Method):
    """A method that raises at the second batch."""

    n_seen: int = field(default=0, init=False)

    def observe(self, batch: Batch) -> float:
        self.n_seen += 1
        if self.n_seen == 2:
            raise KeyError("of the user")
        return self.step(self.model.loss(batch))


@dataclass(kw_only=True, eq=False)
class Forgetful(ReplayMethod):
    """A method whose number of steps is kept where no state is."""

    seen: ClassVar[list[int]] = [0]

    def observe(self, batch: Batch) -> float:
        self.seen[0] += 1
        loss = self.model.loss(batch) * (1 + 0.001 * self.seen[0])
        value = self.step(loss)
        self.remember(batch)
        return value


@dataclass(kw_only=True, eq=False)
class Thawing(ReplayMethod):
    """A method that changes weights of the backbone by hand."""

    def observe(self, batch: Batch) -> float:
        value = self.step(self.model.loss(batch))
        with torch.no_grad():
            for parameter in self.model.backbone.parameters():
                parameter.mul_(0.999)
        self.remember(batch)
        return value


@dataclass(kw_only=True, eq=False)
class Clashing(Method):
    """A method with an option that a learner has."""

    momentum: float = 0.5

    def observe(self, batch: Batch) -> float:
        return self.step(self.model.loss(batch))


@dataclass(eq=False)
class GlobalDice(Selection):
    """A selection that draws from torch's global generator."""

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        for sample in batch.samples():
            if len(memory) < memory.capacity:
                memory.add(sample)
            else:
                memory.write([int(torch.randint(memory.capacity, ()))], sample)


@dataclass(eq=False)
class Relabels(Selection):
    """A selection that stores another label than the one that came."""

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        if len(memory) < memory.capacity:
            memory.add(Batch(batch.x, batch.y * 0, batch.task)[: memory.capacity - len(memory)])


@dataclass(eq=False)
class TooMany(Retrieval):
    """A retrieval that returns all of memory, whatever was asked for."""

    def pick(self, memory: Memory, size: int, batch: Batch, model: Model) -> Batch:
        return memory[:]


class Aliasing(Toy):
    """A stream whose batches are its data."""

    def __init__(self, data: Path | None = None, *, seed: int = 0, tasks: str = "report") -> None:
        super().__init__(data, seed=seed, tasks=tasks)
        x = self.tasks[0].train[:].x
        object.__setattr__(self.tasks[0].train, "read", lambda rows: x[: len(rows)] if len(rows) == 3 else x[rows])


class Narrow(nn.Module):
    """A backbone that states another width than it has."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(input_shape[0], 5)
        self.idle = nn.Linear(2, 2)
        self.n_features = 4

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x))


@dataclass(kw_only=True, eq=False)
class Meddling(Probe):
    """A probe that changes what is learned."""

    def after_step(self, learner: Any, moment: Any) -> None:
        with torch.no_grad():
            learner.method.model.head.weight.mul_(0.99)


@dataclass(kw_only=True, eq=False)
class Amnesic(Probe):
    """A probe that counts in a place that is not saved."""

    derived = frozenset({"plan", "count"})

    def after_step(self, learner: Any, moment: Any) -> None:
        self.count = getattr(self, "count", 0) + 1

    def result(self) -> dict[str, Any]:
        return {"count": self.count}
