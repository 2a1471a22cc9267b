"""Bytes that a learner keeps in memory while it learns, by the terms of the paper's last table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, UntypedStorage, nn

from holdfast.core.classes import learns_by_task
from holdfast.experiments.probes._base import Probe
from holdfast.learner import Learner
from holdfast.memory.selection.centroid import Centroid
from holdfast.methods._base import Diverged, ReplayMethod


class Footprint(BaseModel):
    """Bytes by term.

    Attributes:
        weights: 2P: what is learned, and its gradients.
        passes: (B+M)H: what a step keeps of its passes for the way back, at most at once. The gradients that GEM and
            its kin hold side by side within a step are not counted.
        samples: stored inputs with their classes and tasks.
        features: MH̃ and CH̃: stored with the samples, and the centroids of the selection.
        logits: ML: stored with the samples.
        own: whatever else the method keeps from step to step: importances, anchors, averages of weights, a second
            network that is frozen.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: int
    passes: int
    samples: int
    features: int
    logits: int
    own: int

    @property
    def total(self) -> int:
        return sum(bytes_of for _, bytes_of in self)


@dataclass(kw_only=True, eq=False)
class FootprintProbe(Probe):
    """Measure the learner's memory at the end. Runs one extra training step: do not use the learner afterwards."""

    follows: ClassVar = "nothing"
    derived: ClassVar = Probe.derived | {"footprint"}

    footprint: Footprint | None = field(default=None, init=False)

    def finish(self, learner: Learner) -> None:
        experiment, stream = self.plan.experiment, self.plan.stream
        batch = stream[len(stream) - 1].batch(0, size=experiment.batch_size, seed=experiment.seed)
        task = batch.task if learns_by_task(experiment.setting) else None
        try:
            self.footprint = footprint(learner, batch.x, batch.y, task)
        except Diverged:  # in the extra step, which is none of the run's
            self.footprint = None

    def result(self) -> dict[str, Any]:
        return {"footprint": self.footprint}


def footprint(learner: Learner, x: Tensor, y: Tensor, task: Tensor | int | None) -> Footprint:
    """Return the footprint of a learner as it is. The learner learns `x`, `y`, to find out what a step keeps."""
    method, memory = learner.method, learner.memory
    networks = {name for name, value in vars(method).items() if isinstance(value, nn.Module)}
    learned = {id(parameter) for parameter in method.parameters()}
    others = [value for name, value in vars(method).items() if name in networks]
    frozen = {id(each): each.nbytes for module in others for each in module.parameters() if id(each) not in learned}
    state = {name: value for name, value in method.state_dict().items() if name not in networks}
    columns = {} if memory is None else memory.state_dict()["columns"]
    selection = method.selection if isinstance(method, ReplayMethod) else None
    centres = selection.centres if isinstance(selection, Centroid) else {}
    stored = {name: _n_bytes(column) for name, column in columns.items()}
    return Footprint(
        weights=2 * sum(parameter.nbytes for parameter in method.parameters()),
        samples=sum(stored.get(name, 0) for name in ("x", "y", "task")),
        features=stored.get("extra.feature", 0) + _n_bytes(centres),
        logits=stored.get("extra.logits", 0),
        own=_n_bytes(state) - _n_bytes(columns) - _n_bytes(centres) + sum(frozen.values()),
        passes=_kept_by_a_step(learner, x, y, task),
    )


class _Ledger:
    """Count of the bytes that wait for the backward pass; a tensor counts once, however many passes wait for it."""

    def __init__(self) -> None:
        self.waiting: Counter[int] = Counter()  # by storage
        self.now = self.most = 0

    def enter(self, storage: UntypedStorage) -> None:
        if not self.waiting[storage.data_ptr()]:
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
        self.waiting[storage.data_ptr()] += 1

    def leave(self, storage: UntypedStorage) -> None:
        self.waiting[storage.data_ptr()] -= 1
        if not self.waiting[storage.data_ptr()]:
            self.now -= storage.nbytes()


class _Waiting:
    """A tensor in the ledger for as long as this lives."""

    def __init__(self, tensor: Tensor, ledger: _Ledger) -> None:
        self.tensor, self.ledger = tensor, ledger
        ledger.enter(tensor.untyped_storage())

    def __del__(self) -> None:
        self.ledger.leave(self.tensor.untyped_storage())


def _kept_by_a_step(learner: Learner, x: Tensor, y: Tensor, task: Tensor | int | None) -> int:
    """Return the most bytes that autograd holds at once, without the weights."""
    ledger = _Ledger()
    for parameter in learner.method.parameters():
        ledger.waiting[parameter.untyped_storage().data_ptr()] += 1
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: _Waiting(tensor, ledger), lambda kept: kept.tensor):
        learner.observe(x, y, task)
    return ledger.most


def _n_bytes(tree: Any) -> int:
    """Return the bytes of all tensors in a state."""
    if isinstance(tree, Tensor):
        return tree.nbytes
    branches = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return sum(map(_n_bytes, branches))
