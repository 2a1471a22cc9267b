"""Everything that a learner in production has around its method: labels, probabilities, alarms, recovery."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.boundaries import Boundaries
from holdfast.core.calibration import Temperature
from holdfast.core.classes import predicts_by_task
from holdfast.core.detectors import DetectorName
from holdfast.core.input_watch import InputWatch
from holdfast.core.labels import ClassLabels, Label
from holdfast.core.novelty import Novelty, spread_slots
from holdfast.core.recovery import Recovery, RecoveryWarning
from holdfast.core.standardise import Standardise
from holdfast.core.state import State, Stateful, _copied
from holdfast.core.waiting import Waiting
from holdfast.guard import Guard, GuardWarning, Rollback
from holdfast.methods._base import Diverged, Method, ReplayMethod

EVERY = 20  # batches, one of which is predicted before it is learned
BEGIN = 10  # batches at first, each of which is
WAITING = 10_000  # inputs that can wait for their labels
SLOWER = 0.5  # the learning rate after a recovery, in that of before
KEPT_AS_THEY_ARE = frozenset({"memory", "selection", "retrieval"})  # what a recovery leaves alone


@dataclass(frozen=True)
class Decision:
    """Answer of a learner for one sample.

    Attributes:
        label: the likeliest one.
        probability: of it.
        is_unknown: True if the sample is farther from those remembered than samples of known classes are.
    """

    label: Label
    probability: float
    is_unknown: bool


@dataclass(frozen=True)
class Drift:
    """A change of the stream that was found in it.

    Attributes:
        signal: that has changed: `loss` or `features`.
        n_observed: batches observed then.
    """

    signal: str
    n_observed: int


@dataclass(frozen=True)
class PracticeOptions:
    """Options of a learner in production. See `Learner` for what they mean."""

    standardise: bool | None = None
    unknown: float | None = None
    waiting: int = WAITING
    boundaries: DetectorName | None = None
    recover: bool = True


class Answers(Stateful):
    """The parts that turn scores into answers: labels, a temperature, and the distance of what is unknown."""

    def __init__(self, unknown: float | None = None) -> None:
        self.labels = ClassLabels()
        self.temperature = Temperature()
        self.novelty = None if unknown is None else Novelty(unknown)


@dataclass(frozen=True)
class Looked:
    """Scores and features of samples of known classes, before they were learned."""

    scores: Tensor
    y: Tensor
    features: Tensor | None
    remembered: Tensor | None


class Practice(Stateful):
    """The parts around a method, and the moments of a step at which they look.

    None of them changes the learning of a stream that does not run away, but for the end of a task at a boundary.
    """

    derived: ClassVar[frozenset[str]] = frozenset({"callbacks", "rollback_callbacks", "column_names"})

    standardise: bool | None

    def __init__(self, options: PracticeOptions) -> None:
        self.standardise = options.standardise
        self.answers = Answers(options.unknown)
        self.waiting = Waiting(options.waiting)
        self.boundaries = None if options.boundaries is None else Boundaries(options.boundaries)
        self.recovery = Recovery() if options.recover else None
        self.watch = InputWatch(standardised=False)
        self.guard: Guard | None = None
        self.callbacks: list[Callable[[Drift], None]] = []
        self.rollback_callbacks: list[Callable[[Rollback], None]] = []
        self.column_names: list[str] = []  # of inputs, for warnings

    @classmethod
    def of(cls, state: State) -> Practice:
        """Return the parts that a state was saved of; ValueError if it is none."""
        try:
            novelty, boundaries = state["answers"]["novelty"], state["boundaries"]
            options = PracticeOptions(
                standardise=state["standardise"],
                unknown=None if novelty is None else novelty["false_alarms"],
                waiting=state["waiting"]["capacity"],
                boundaries=None if boundaries is None else boundaries["detector"],
                recover=state["recovery"] is not None,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"the saved parts around the method are not whole: {error}") from error
        made = cls(options)
        made.load_state_dict(state)
        return made

    def begin(self, method: Method, input_shape: tuple[int, ...], *, as_they_come: bool) -> None:
        """Decide whether inputs are standardised, now that their shape is known.

        Args:
            as_they_come: the caller scales inputs, or has a network of its own for them.
        """
        wanted = self.standardise
        if wanted is None:
            wanted = len(input_shape) == 1 and method.standardises and not as_they_come
        if self.answers.novelty is not None:
            remembered_inputs(method)
        if wanted:
            if len(input_shape) != 1:
                raise ValueError(f"inputs of shape {input_shape} are no vectors: leave standardise out")
            method.model.scaling = Standardise(input_shape[0])
        self.watch.standardised = wanted or not method.standardises

    def look(self, method: Method, batch: Batch, n_observed: int) -> Looked | None:
        """Look at samples before they are learned; None unless it is time, and their classes are known."""
        seen = method.model.seen
        if n_observed == 0 or (n_observed % EVERY and n_observed > BEGIN):
            return None
        tasks = set(batch.task.tolist()) if predicts_by_task(seen.setting) else set()
        learned = seen.all_learned().to(batch.y.device)
        known = learned[batch.y.clamp(max=len(learned) - 1)] & (batch.y < len(learned))
        if not bool(known.any()) or not all(seen.knows_task(task) for task in tasks):
            return None
        old = batch[known]
        with method.settled():
            scores = method.scores(old.x, old.task if tasks else torch.full_like(old.task, NO_TASK))
        if self.answers.novelty is None:
            return Looked(scores, old.y, None, None)
        samples = remembered_inputs(method)
        return Looked(scores, old.y, method.embed(old.x), method.embed(samples) if len(samples) else None)

    def learn(self, method: Method, batch: Batch) -> float:
        """Learn a batch by the method; where its loss is no number, once more from the last good weights."""
        # Sums and stored samples cannot run away, so of methods that learn nothing else nothing is kept.
        if self.recovery is not None and not self.recovery.good and method.learned_tensors():
            self.recovery.keep(_weights(method))
        try:
            return _observed(method, batch)
        except Diverged as error:
            if self.recovery is None or not self.recovery.good:
                raise
            self._slow_down(method, self.recovery)
            try:
                loss = _observed(method, batch)
            except Diverged:  # it is the batch that cannot be learned, and not the weights that cannot learn
                raise error from None  # and the transaction takes everything back
            self._say(self.recovery, "the loss was no number")
            return loss

    def settle(
        self,
        method: Method,
        batch: Batch,
        loss: float,
        looked: Looked | None,
        n_observed: int,
        *,
        brings_classes: bool,
    ) -> None:
        """Take in a step that was made: did learning run away, and has the stream changed?

        Args:
            brings_classes: the batch has classes that are new, whose loss is large by nature.
        """
        loss /= _heaviest(method, batch)  # a large weight makes a large loss, which is no sign of anything
        if looked is not None:
            self.answers.temperature.update(looked.scores, looked.y)
            if self.answers.novelty is not None and looked.features is not None and looked.remembered is not None:
                self.answers.novelty.update(looked.features, looked.remembered)
        if (recovery := self.recovery) is not None:
            if recovery.ran_away(loss, is_expected=brings_classes) and recovery.good:
                self._slow_down(method, recovery)
                self._say(recovery, f"the loss had grown to {loss:.3g}")
            elif recovery.is_due and recovery.good:
                recovery.keep(_weights(method))
        if self.boundaries is not None:
            signal = self.boundaries.update(loss, method.embed(batch.x))
            if signal is not None:
                method.end_task(NO_TASK)
                for callback in self.callbacks:
                    callback(Drift(signal, n_observed))

        if self.guard is not None and n_observed % self.guard.every == 0:
            self.look_after(method, n_observed)

    def grow(self, method: Method, n_classes: int, n_observed: int) -> None:
        """Make room for `n_classes` classes. Good weights of a head with fewer rows are kept anew.

        Recovery keeps them when the next batch is learned. The guard looks before, while it can still go back.
        """
        if self.guard is not None:
            self.look_after(method, n_observed)
        method.grow(n_classes)
        if self.recovery is not None:
            self.recovery.good = {}
        if self.guard is not None:
            self.guard.keep(_copied(_weights(method)), self.guard.measured(method), n_observed)

    def look_after(self, method: Method, n_observed: int) -> None:
        """Measure held-out samples; go back to the last good weights, or keep those of now if they are good."""
        assert self.guard is not None
        guard, right = self.guard, self.guard.measured(method)
        if guard.good and guard.fell(right):
            self._go_back(method, guard.good)
            guard.n_rolled_back += 1
            fallen, after = (each.double().mean().item() for each in (right, guard.measured(method)))
            warnings.warn(
                f"held-out accuracy fell from {guard.best:.3f} to {fallen:.3f}: weights went back from batch "
                f"{n_observed} to batch {guard.kept_at}, which gives {after:.3f}",
                GuardWarning,
                stacklevel=4,
            )
            for callback in self.rollback_callbacks:
                callback(Rollback(n_observed, guard.kept_at, guard.best, fallen, after))
        elif not guard.good or guard.is_good(right):
            guard.keep(_copied(_weights(method)), right, n_observed)

    def state_dict(self) -> State:
        state = super().state_dict()
        if self.guard is None:
            del state["guard"]  # files and journals from before there were guards say nothing of it
        return state

    def load_state_dict(self, state: State) -> None:
        """Restore; raise ValueError for parts that do not fit the options."""
        for name in ("boundaries", "recovery"):
            if isinstance(state, dict) and (state.get(name) is None) != (getattr(self, name) is None):
                raise ValueError(f"the saved learner has another option for its {name}")
        guard = state.get("guard") if isinstance(state, dict) else None
        self.guard = None
        super().load_state_dict({**state, "guard": None} if isinstance(state, dict) else state)
        self.guard = None if guard is None else Guard.of(guard)

    def kept_weights(self) -> list[State]:
        """Return all weights that are kept to go back to."""
        found = [] if self.guard is None else [self.guard.good]
        return found if self.recovery is None or not self.recovery.good else [*found, self.recovery.good]

    def _slow_down(self, method: Method, recovery: Recovery) -> None:
        rates = [group["lr"] for group in method.optimizer.param_groups]
        self._go_back(method, recovery.good)
        for group, rate in zip(method.optimizer.param_groups, rates, strict=True):
            group["lr"] = SLOWER * rate

    def _go_back(self, method: Method, good: State) -> None:
        now = method.state_dict()
        for weight in method.parameters():
            weight.data = weight.data.clone()  # the old ones may be brought back, and must not be written over
        method.load_state_dict(gone_back(now, good))

    def _say(self, recovery: Recovery, why: str) -> None:
        recovery.recovered()
        warnings.warn(
            f"learning ran away ({why}): it went back to the last good weights and goes on at {SLOWER} of the learning "
            f"rate; this is recovery {recovery.n_recovered}",
            RecoveryWarning,
            stacklevel=4,
        )


def gone_back(now: State, good: State) -> State:
    """Return the state of a method with weights that were kept, and all else as it is now."""
    return {**now, **good, "model": {**good["model"], "_extra_state": now["model"]["_extra_state"]}}


def remembered_inputs(method: Method) -> Tensor:
    """(m, …) Return up to 256 stored samples, evenly over memory; ValueError for a method without a memory."""
    if not isinstance(method, ReplayMethod):
        raise ValueError(
            f"{type(method).__name__} remembers no samples, so none is unknown to it: use a method that replays"
        )
    memory = method.memory
    return memory.x[spread_slots(len(memory))] if len(memory) else torch.zeros(0, 1)


def _observed(method: Method, batch: Batch) -> float:
    loss = method.observe(batch)
    method.check_finite()
    return loss


def _heaviest(method: Method, batch: Batch) -> float:
    """Return the largest weight of a new or of a stored sample, 1 at least."""
    stored = method.memory.weight if isinstance(method, ReplayMethod) and method.memory.columns else None
    found = [weights.max().item() for weights in (batch.weight, stored) if weights is not None and len(weights)]
    return max([1.0, *found])


def _weights(method: Method) -> dict[str, Any]:
    return method.saved(but=KEPT_AS_THEY_ARE)
