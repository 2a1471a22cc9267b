"""Base classes of all methods: they observe batches and return scores."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.average import WeightAverage
from holdfast.core.batch import FEATURE, NO_TASK, WEIGHT, Batch
from holdfast.core.gradients import assign_gradient, flat_gradient
from holdfast.core.model import HeadKind, Model, predicting
from holdfast.core.optimizers import (
    SGD,
    Optimizer,
    check_groups,
    check_moments,
    grow_optimizer,
    n_moments,
    parameters_of,
)
from holdfast.core.state import Plain, State, Stateful, are_finite
from holdfast.core.undo import Undo
from holdfast.memory.retrieval._base import Retrieval
from holdfast.memory.selection._base import Selection
from holdfast.memory.storage import Memory

MAX_STEPS = 10_000  # of one batch; more are more likely a mistake
MAX_REPLAY = 2**31  # samples of one step
MAX_COUNT = 10_000  # samples that one batch stands for, where weights are counts
TakesWeights = Literal["no", "share", "count", "count and share"]


class Diverged(ArithmeticError):
    """The loss is not a number any more; the message says what to do."""


def finite(loss: Tensor) -> float:
    """Return the value of `loss`; one that is no number raises."""
    value = loss.item()
    if not math.isfinite(value):
        raise Diverged(
            f"the loss is {value}: the weights were left as they are; lower the learning rate, "
            "look at the last batch, or go back to the last save"
        )
    return value


@dataclass(kw_only=True, eq=False)
class Method(Stateful):
    """Learns each batch once.

    A subclass's fields are its hyper-parameters; its `observe` reads like the paper's algorithm.

    Example:
        >>> @dataclass(kw_only=True, eq=False)
        ... class Steps(Method):
        ...     damping: float = 0.5
        ...
        ...     def observe(self, batch):
        ...         return self.step(self.damping * self.model.loss(batch))
        >>> Steps.head
        'linear'
    """

    head: ClassVar[HeadKind] = "linear"  # what it learns with unless told otherwise
    learns_head: ClassVar[bool] = True  # False: its scores come from elsewhere
    # The effect of a sample's weight. "share" multiplies the sample's part of each loss: `observe` finds the weights in
    # `batch.weight`. "count" repeats the sample, so that `observe` finds none.
    takes_weights: ClassVar[TakesWeights] = "no"
    one_loss: ClassVar[bool] = True  # each step goes down one loss of new and replayed samples
    by_batch: ClassVar[bool] = True  # learns and remembers the samples of a batch together, beside replayed ones

    writes_weights: ClassVar[bool] = False  # in place, outside of the optimiser's steps
    reads_gradients: ClassVar[bool] = False  # after a step of the optimiser
    standardises: ClassVar[bool] = True  # by default inputs that are vectors of floats reach it standardised
    reads: ClassVar[frozenset[str]] = frozenset()  # attributes, beside model and options, that `scores` reads

    model: Model
    optimizer: Optimizer
    steps_per_batch: Annotated[int, Field(ge=1, le=MAX_STEPS)] = 1
    # Decay of the average of weights that predicts; None: the weights themselves do.
    average: Annotated[float, Field(gt=0, lt=1)] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, SGD):
            ours = type(self).__module__.startswith(__package__)
            known = type(self.model.backbone).__module__.startswith("holdfast.backbones.")
            self.optimizer.swaps = ours and known and not self.writes_weights and not self.reads_gradients
        self.weight_average = None if self.average is None else WeightAverage(self.average)

    def keep_for_undo(self, undo: Undo) -> None:
        undo.keep(self.optimizer)  # before the model: an optimiser may look after the weights by itself
        super().keep_for_undo(undo)

    @classmethod
    def check_state(cls, state: State, model: Model) -> None:
        """Raise ValueError if the method would allocate more, when it is made, than its saved `state` has.

        Args:
            model: made for the state, and not restored yet.
        """

    def load_state_dict(self, state: State) -> None:
        """Restore; raise ValueError if the parts of the state do not fit together."""
        if isinstance(state, dict):  # else the next line says so
            check_groups(self.optimizer, state.get("optimizer"))
        super().load_state_dict(state)
        check_moments(self.optimizer, state["optimizer"])
        if self.weight_average is not None:
            self.weight_average.check(self.model)

    @property
    def steps_a_batch(self) -> int:
        """Return the number of steps of the optimiser for a batch, as the header of a run states it."""
        return self.steps_per_batch

    @abstractmethod
    def observe(self, batch: Batch) -> float:
        """Learn a batch; gives the loss before the last step."""

    def weigh(self, batch: Batch, weights: Tensor) -> Batch:
        """Return the samples as `observe` takes those of `weights` (n,), all above 0; ValueError if it cannot.

        A count of 2.5 is three samples, each with 2.5/3 of its share.
        """
        name, kind = type(self).__name__, self.takes_weights
        if kind == "no":
            raise ValueError(f"{name} takes no sample weights but 0 and 1: leave sample_weight out, or choose a method")
        if kind == "share":
            return batch.with_extra(**{WEIGHT: weights})
        counts = weights.ceil()
        if kind == "count" and not torch.equal(counts, weights):
            raise ValueError(f"{name} counts its samples, so that a weight is a count: give whole numbers")
        if counts.sum().item() > MAX_COUNT:
            raise ValueError(f"the weights of a batch stand for more than {MAX_COUNT:,} samples: give smaller ones")
        rows = torch.arange(len(batch)).repeat_interleave(counts.long())
        shares = (weights / counts)[rows]
        return batch[rows] if bool((shares == 1).all()) else batch[rows].with_extra(**{WEIGHT: shares})

    def end_task(self, task: int) -> None:
        """Do what is done once a task, now that `task` is over."""

    def settle(self) -> None:
        """Update the average of the weights; called after each batch."""
        if self.weight_average is not None:
            self.weight_average.update(self.model)

    def settled(self) -> AbstractContextManager[None]:
        """Context manager: inside, the model holds its prediction weights (the EMA, if set)."""
        return nullcontext() if self.weight_average is None else self.weight_average.inside(self.model)

    def embed(self, x: Tensor) -> Tensor:
        """Return (n, n_features) features without gradient, of the model as it predicts."""
        with self.settled():
            return self.model.embed(x)

    def prepare_to_predict(self) -> None:
        """Work out whatever `scores` would work out at its first call after a batch; no state changes."""

    def copy_for_predicting(self) -> Self:
        """Return a copy with the same scores and features, which no call changes: threads may share it.

        It has a copy of the weights as they predict, of what `reads` names, and of the options. Where a class scores
        in a way of its own and does not say what it reads, everything is copied.
        """
        twin = object.__new__(type(self))
        with self.settled():
            self.prepare_to_predict()
            twin.model = self.model.copy_for_predicting()
        reads = self._known_reads()
        for name, value in vars(self).items():
            if name not in ("model", "optimizer", "weight_average") and (
                reads is None or name in reads or isinstance(value, Plain | tuple)
            ):
                setattr(twin, name, copy.deepcopy(value))
        twin.weight_average = None
        return twin

    @classmethod
    def _known_reads(cls) -> frozenset[str] | None:
        """Return what `scores` reads, None if the class that defines it does not say."""
        for each in cls.__mro__:
            if "reads" in vars(each):
                return cls.reads
            if "scores" in vars(each):
                return None
        return None

    def check_finite(self) -> None:
        """Raise Diverged if a weight, or what is kept beside it, became NaN or infinite."""
        if not are_finite(self.learned_tensors()):
            raise Diverged(
                "a step made weights that are NaN or infinite: nothing of the batch was learned; lower the learning "
                "rate, or look at the batch"
            )

    def learned_tensors(self) -> list[Tensor]:
        """Return the tensors that a batch may ruin: weights, statistics and moments."""
        found = [*self.parameters(), *self.model.backbone.buffers()]
        for kept in self.optimizer.state.values():
            found += [value for value in kept.values() if isinstance(value, Tensor)]
        return found

    def bytes_of_classes(self) -> int:
        """Return the bytes that grow with classes, beside those of memory and of the selection.

        They are the rows by which the head has grown, with all that is kept for each row: its gradient, a spare copy,
        momentum or moments, and the average. The table of classes seen counts as well.
        """
        head, seen = self.model.head, self.model.seen
        n_grown = head.n_classes - head.n_first
        copies = 3 + (self.weight_average is not None) + n_moments(self.optimizer)
        row = sum(parameter[0].nbytes for parameter in head.parameters())
        return n_grown * row * copies + seen.nbytes

    def caution(self) -> str | None:
        """Return one sentence where the method means little in the model's setting; the header of a run shows it."""
        return None

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        """Return (n, n_classes), one number a class, minus infinity where it does not compete."""
        with predicting(self.model):
            return self.model.masked(self.model(x), task)

    def grow(self, n_classes: int) -> None:
        """Make room for `n_classes` classes."""
        self.model.grow(n_classes)
        grow_optimizer(self.optimizer)

    def step(self, loss: Tensor) -> float:
        """Go one step down the gradient of `loss`; a loss that is no number leaves the weights alone."""
        value = self.backward(loss)
        self.optimizer.step()
        return value

    def backward(self, loss: Tensor) -> float:
        """Take the gradient of `loss` and no step yet; a loss that is no number raises."""
        value = finite(loss)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return value

    def gradient(self, loss: Tensor) -> Tensor:
        """Return (n,), the gradient of `loss` in everything that is learned, to be combined with others."""
        finite(loss)
        gradient = flat_gradient(loss, self._not_frozen())
        if not are_finite([gradient]):
            raise Diverged("the gradient has numbers that are NaN or infinite: nothing of the batch was learned")
        return gradient

    def follow(self, gradient: Tensor) -> None:
        """Go one step down a `gradient` (n,)."""
        assign_gradient(gradient, self._not_frozen())
        self.optimizer.step()

    def merge(self, other: Method) -> None:
        """Add what another of the same options has learned; only a method whose state is a sum can."""
        raise ValueError(f"what {type(self).__name__} has learned is no sum: it can neither be merged nor taken back")

    def forget(self, batch: Batch) -> list[int]:
        """Take samples out of what was learned; gives the classes of which none are left."""
        raise ValueError(f"what {type(self).__name__} has learned is no sum: it can neither be merged nor taken back")

    def parameters(self) -> list[Tensor]:
        """Return θ from the optimiser's list, which costs less than to walk through the modules."""
        return parameters_of(self.optimizer)

    def _not_frozen(self) -> list[Tensor]:
        return [parameter for parameter in self.parameters() if parameter.requires_grad]


@dataclass(kw_only=True, eq=False)
class ReplayMethod(Method):
    """A method with a memory: it recalls old samples and remembers new ones.

    Example:
        >>> @dataclass(kw_only=True, eq=False)
        ... class Twice(ReplayMethod):
        ...     old_weight: float = 2.0
        ...
        ...     def observe(self, batch):
        ...         loss = self.model.loss(batch)
        ...         old = self.recall(batch)
        ...         if len(old):
        ...             loss = loss + self.old_weight * self.model.loss(old)
        ...         value = self.step(loss)
        ...         self.remember(batch)
        ...         return value
        >>> Twice.selects
        'reservoir'
    """

    selects: ClassVar[str] = "reservoir"  # the selection that it has unless told otherwise
    extras: ClassVar[frozenset[str]] = frozenset()  # what it keeps beside samples itself

    memory: Memory
    selection: Selection
    retrieval: Retrieval
    replay_size: Annotated[int, Field(ge=0, le=MAX_REPLAY)] = 10

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        memory, seen = self.memory, self.model.seen
        if memory.columns:
            if not seen.were_seen(memory.y, memory.task):
                raise ValueError("a class is in memory, but was never seen")
            if bool(((memory.task != NO_TASK) != seen.learns_by_task).any()):
                raise ValueError(f"the tasks of samples in memory are not those of the setting '{seen.setting}'")
            self.selection.check(memory, self.model)
            self.check_extras()
            memory.check_weights()

    def check_extras(self) -> None:
        """Raise ValueError if what a file says to be beside samples is not what this method keeps there."""

    @property
    def replays_new(self) -> bool:
        """True if samples are replayed while their task runs; where tasks are unknown, all are."""
        return not self.model.seen.learns_by_task or self.retrieval.replays_running_task

    def recall(self, batch: Batch) -> Batch:
        """Old samples to learn again beside `batch`; none while memory is empty."""
        if not len(self.memory):
            return batch[:0]
        return self.retrieval.pick(self.memory, self.replay_size, batch, self.model)

    def remember(self, batch: Batch) -> None:
        """Let the selection take what it wants of `batch`, with whatever extra the method put beside it."""
        batch = self.selection.with_extras(self.memory.with_weights(batch), self.model)
        if not are_finite(list(batch.extra.values())):
            raise Diverged("features of the batch are NaN or infinite: nothing of it was learned or stored")
        if self.memory.max_bytes is not None:
            self.memory.reserve(self.bytes_of_classes() + self.selection.bytes_of_classes(batch))
        self.memory.fit(batch, beside=self.selection.bytes_beside(batch))
        self.selection.update(self.memory, batch, self.model)

    def embed_again(self, task: int) -> None:
        """Take the extra `feature` of the stored samples of `task` once more, by the model as it predicts now."""
        if not len(self.memory):
            return
        slots = (self.memory.task == task).nonzero().flatten()
        self.memory.rewrite_extra(FEATURE, slots, self.embed(self.memory.x[slots]))
