"""The door for practitioners and for the runner: observe, predict, save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from holdfast.build import build_method, build_model
from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.checkpoint import CHECKPOINT, CorruptCheckpoint, read_checkpoint, write_checkpoint
from holdfast.core.classes import MAX_TASKS, learns_by_task, predicts_by_task
from holdfast.core.drift import moved
from holdfast.core.model import keeping_statistics
from holdfast.core.options import shown
from holdfast.core.state import State, Stateful
from holdfast.memory.storage import Memory
from holdfast.methods._base import Method, ReplayMethod
from holdfast.parts import Unknown, find
from holdfast.saved import as_saved, check_extras, check_saved, n_features_of
from holdfast.settings import LearnerSettings, Part, check_setting, options_of, resolved_settings

__all__ = ["DriftWatch", "Learner", "load_learner"]

Array = Tensor | np.ndarray[Any, Any] | Sequence[Any]
MAX_CLASSES = 100_000  # a growing head takes no label beyond: it is more likely a mistake than a class
MAX_INPUT = 1e15  # beyond, the variance of a batch may be more than a float32 can hold
INPUT_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)


class Learner(Stateful):
    """Learns a stream batch by batch, in bounded memory.

    Args:
        method: a name of `holdfast list methods`.
        backbone: a name of `holdfast list backbones`, {"name": …, option: …}, or any module that makes
            features (n, n_features) of inputs.
        input_shape: of one sample; taken from the first batch if not given.
        scale, mean: an input first becomes x * scale - mean. By default bytes are scaled by 1/255.
        device: where to learn.
        settings: any field of `LearnerSettings` (setting, n_classes, memory, selection, retrieval, lr, seed, …) or
            any option of the method (replay_size, …).
    """

    def __init__(
        self,
        method: str | dict[str, Any] = "er",
        *,
        backbone: str | dict[str, Any] | nn.Module = "mlp",
        input_shape: Sequence[int] | None = None,
        scale: float | None = None,
        mean: Tensor | float = 0.0,
        device: str | torch.device = "cpu",
        **settings: Any,
    ) -> None:
        self.settings = _settings(method, backbone, settings)
        self.device = _usable(device)
        self.scale = scale
        self.mean = mean
        self.input_shape = tuple(input_shape) if input_shape is not None else None
        self.input_dtype: torch.dtype | None = None
        self.n_observed = 0  # batches
        self.running_task: int | None = None  # learned from, and not ended yet
        self._backbone = backbone if isinstance(backbone, nn.Module) else None
        self._watchers: list[Callable[[Learner], None]] = []
        self._method: Method | None = None
        if self.input_shape is not None:
            self._method = self._built(self.input_shape)

    @property
    def method(self) -> Method:
        if self._method is None:
            raise RuntimeError("nothing was learned yet: call observe(x, y) first, or give input_shape")
        return self._method

    @property
    def memory(self) -> Memory | None:
        """What is remembered; None for a method without a memory."""
        return self.method.memory if isinstance(self.method, ReplayMethod) else None

    def observe(self, x: Array, y: Array, task: int | Array | None = None) -> float:
        """Learn n samples once; gives their loss.

        Args:
            x: (n, …) inputs: tensor, array or list; bytes or floats.
            y: (n,) classes, whole numbers from 0.
            task: of all samples, or (n,); in every setting but `free`.

        Bad input raises ValueError and changes nothing.
        """
        inputs = self._checked_inputs(x)
        classes, n_classes = self._checked_classes(y, inputs.shape[0])
        tasks = self._checked_tasks(task, inputs.shape[0], learning=True)
        if self.input_dtype is None:
            self._begin(Batch(inputs, classes, tasks))
        method = self.method
        if learns_by_task(self.settings.setting):
            self._turn_to(tasks.tolist())

        batch = Batch(inputs, classes, tasks)
        if self.device.type != "cpu":
            batch = batch.to(self.device)
        seen = method.model.seen
        if n_classes > seen.n_classes:
            method.grow(n_classes)
        seen.add(batch.y, batch.task)
        with keeping_statistics(method.model):
            loss = method.observe(batch)
        method.settle()
        self.n_observed += 1
        for watcher in self._watchers:
            watcher(self)
        return loss

    def end_task(self) -> None:
        """Say that the task is over; observing another task says it too."""
        if not learns_by_task(self.settings.setting):
            raise ValueError("in the setting 'free' tasks are not known, so none ends: leave end_task out")
        if self.running_task is not None:
            self.method.end_task(self.running_task)
            self.running_task = None

    def announce(self, classes: Sequence[int], task: int | None = None) -> None:
        """Say which classes a task has before its samples come, where that is known."""
        y, n_classes = self._checked_classes(list(classes), len(classes))
        tasks = self._checked_tasks(task, len(classes), learning=True)
        if n_classes > self.method.model.head.n_classes:
            self.method.grow(n_classes)
        self.method.model.seen.announce(y.tolist(), int(tasks[0]))

    def merge(self, other: Learner) -> None:
        """Add what another learner of the same settings has learned, for a method whose state is a sum.

        Afterwards this learner has the bits that it would have if it had learned all batches itself, its own and the
        other's, in any order. The other one keeps what it has. ValueError if the two do not fit together; then nothing
        has changed.

        Example:
            >>> both, one, two = (Learner("slda", backbone="identity", n_classes=2) for _ in range(3))
            >>> x, y = torch.tensor([[0.0, 1.0], [0.1, 1.1], [2.0, 0.0], [2.2, 0.3]]), torch.tensor([0, 0, 1, 1])
            >>> _ = one.observe(x[::2], y[::2]), two.observe(x[1::2], y[1::2]), both.observe(x, y)
            >>> one.merge(two)
            >>> torch.equal(one.scores(x), both.scores(x))
            True
        """
        self._check_mergeable(other)
        if other._method is None:
            return
        begins = self._method is None
        method = self._built(tuple(other.input_shape or ())) if self._method is None else self._method
        method.merge(other.method)  # which raises before it changes anything
        if begins:
            self._method, self.input_shape = method, other.input_shape
        self.input_dtype = self.input_dtype or other.input_dtype
        method.model.seen.join(other.method.model.seen)
        self.n_observed += other.n_observed

    def forget(self, x: Array, y: Array) -> None:
        """Take samples back that were learned, for a method whose state is a sum: as if they had never come.

        A class of which no sample is left is no longer known. ValueError if the samples cannot have been learned; then
        nothing has changed. Which samples were learned is not stored: to forget others of the same class and size
        leaves sums that belong to no set of samples.

        Example:
            >>> learner, without = (Learner("ncm", backbone="identity", n_classes=2) for _ in range(2))
            >>> x, y = torch.tensor([[0.0, 1.0], [0.1, 1.1], [2.0, 0.3]]), torch.tensor([0, 0, 1])
            >>> _ = learner.observe(x, y), without.observe(x[[0, 2]], y[[0, 2]])
            >>> learner.forget(x[[1]], y[[1]])
            >>> torch.equal(learner.scores(x), without.scores(x))
            True
        """
        inputs = self._checked_inputs(x)
        classes, n_classes = self._checked_classes(y, inputs.shape[0])
        method = self.method
        if n_classes > method.model.seen.n_classes:
            raise ValueError(f"label {n_classes - 1} was never learned: forget only what was")
        batch = Batch(inputs, classes, torch.full_like(classes, NO_TASK))
        gone = method.forget(batch if self.device.type == "cpu" else batch.to(self.device))
        method.model.seen.remove(gone)

    def _check_mergeable(self, other: Learner) -> None:
        if other is self:
            raise ValueError("a learner cannot be merged with itself: every sample would count twice")
        if other.settings != self.settings:
            raise ValueError("the two learners have other settings: only those of the same settings can be merged")
        if self._method is None or other._method is None:
            return
        for name in ("input_shape", "scale"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(f"the two learners have another {name}: {getattr(self, name)}, {getattr(other, name)}")
        if None not in (self.input_dtype, other.input_dtype) and self.input_dtype != other.input_dtype:
            raise ValueError(f"the two learners take {self.input_dtype} and {other.input_dtype}: convert one's samples")
        ours, theirs = self.method.model, other.method.model
        weights, others = ours.backbone.state_dict(), theirs.backbone.state_dict()
        same = weights.keys() == others.keys() and all(
            torch.equal(weights[name], others[name].to(weights[name].device)) for name in weights
        )
        if not same or not torch.equal(ours.mean, theirs.mean.to(ours.mean.device)):
            raise ValueError("the two learners have other backbones: their features cannot be added up")

    def predict(self, x: Array, task: int | Array | None = None) -> Tensor:
        """(n,) the class of each sample; `task` in the setting `task`, and there only."""
        return self.scores(x, task).argmax(dim=1)

    def scores(self, x: Array, task: int | Array | None = None) -> Tensor:
        """(n, n_classes) one number a class, minus infinity where a class does not compete."""
        if not self.method.model.seen.all_seen().any():
            raise RuntimeError("nothing was learned yet: call observe(x, y) first")
        inputs = self._checked_inputs(x)
        tasks = self._checked_tasks(task, len(inputs), learning=False).to(self.device)
        size = self.method.model.part_size(inputs)
        with self.method.settled():
            parts = zip(torch.split(inputs, size), torch.split(tasks, size), strict=True)
            return torch.cat([self.method.scores(x.to(self.device), task) for x, task in parts])

    def features(self, x: Array) -> Tensor:
        """(n, n_features) what the backbone makes of inputs, as when predicting."""
        return self.method.embed(self._checked_inputs(x))

    def watch(self, watcher: Callable[[Learner], None]) -> None:
        """Call `watcher` after each batch; watchers are not saved."""
        self._watchers.append(watcher)

    def save(self, path: str | Path) -> None:
        """Write everything to one file; at every instant a whole file is at `path`, the one before beside it."""
        write_checkpoint(Path(path), self.state_dict())

    def state_dict(self) -> State:
        return {
            "settings": self.settings.model_dump(mode="json"),
            "own_backbone": self._backbone is not None,
            "scale": self.scale,
            "mean": self.mean,
            "input_shape": self.input_shape,
            "input_dtype": None if self.input_dtype is None else str(self.input_dtype).removeprefix("torch."),
            "n_observed": self.n_observed,
            "running_task": self.running_task,
            "method": None if self._method is None else self._method.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore; a state that does not fit raises, and leaves all but a backbone of one's own as it was."""
        if _stored_settings(state["settings"]) != self.settings:
            raise ValueError("the saved state is of a learner with other settings: use load_learner")
        settings = self.settings
        if state["method"] is not None:
            settings = resolved_settings(as_saved(settings, state["method"]))
        check_saved(settings, state, self._backbone)
        method = None  # built anew, since the head of the one that is here may have grown beyond the saved one
        if state["method"] is not None:
            model = build_model(
                settings,
                state["input_shape"],
                scale=state["scale"],
                mean=state["mean"],
                backbone=self._backbone,
                n_features=n_features_of(state, self._backbone),
            )
            find("methods", settings.method.name).check_state(state["method"], model)
            method = build_method(settings, model.to(self.device))
            method.load_state_dict(state["method"])
            check_extras(method, settings)
        self.scale, self.mean, self.input_shape = state["scale"], state["mean"], state["input_shape"]
        self.input_dtype = None if state["input_dtype"] is None else getattr(torch, state["input_dtype"])
        self.n_observed, self.running_task = state["n_observed"], state["running_task"]
        self._method = method

    def _begin(self, batch: Batch) -> None:
        """Take from the first batch what was left open."""
        shape = tuple(batch.x.shape[1:])
        method = self._method or self._built(shape)
        if isinstance(method, ReplayMethod):
            method.memory.check(batch)
        self._method, self.input_shape, self.input_dtype = method, shape, batch.x.dtype

    def _turn_to(self, tasks: list[int]) -> None:
        """End the running task if the samples are all of another; a mixed batch ends none."""
        if self.running_task is not None and set(tasks) != {self.running_task} and len(set(tasks)) == 1:
            self.end_task()
        self.running_task = tasks[-1]

    def _built(self, input_shape: tuple[int, ...]) -> Method:
        model = build_model(self.settings, input_shape, scale=self.scale, mean=self.mean, backbone=self._backbone)
        return build_method(self.settings, model.to(self.device))

    def _checked_inputs(self, x: Array) -> Tensor:
        from_list = not isinstance(x, Tensor | np.ndarray)
        inputs = _as_tensor(x, "x")
        if inputs.dtype == torch.float64 or (from_list and inputs.dtype == torch.int64):
            inputs = inputs.float()
        if inputs.dtype not in INPUT_DTYPES:
            raise ValueError(f"x has dtype {_short(inputs.dtype)}: give bytes (uint8) or floats")
        if self.input_dtype is not None and inputs.dtype != self.input_dtype:
            raise ValueError(
                f"x has dtype {_short(inputs.dtype)}, but this learner began with {_short(self.input_dtype)}: "
                "convert it"
            )
        shape, expected = tuple(inputs.shape), self.input_shape
        if expected is not None and shape == expected:
            raise ValueError(f"x has shape {shape}, which is one sample: add a batch dimension, as in x[None]")
        if expected is not None and shape[1:] != expected:
            wanted = ", ".join(map(str, expected))
            raise ValueError(f"x has shape {shape}, but this learner takes (n, {wanted}): reshape it")
        if inputs.ndim < 2:
            raise ValueError(f"x has shape {shape}: give (n, …), one row a sample")
        if 0 in shape:
            raise ValueError(f"x has shape {shape}, which holds nothing: give at least one sample")
        # One number to compare, and NaN is below nothing: several times faster than to ask each whether it is finite.
        if inputs.dtype != torch.uint8 and not inputs.abs().max().item() <= MAX_INPUT:
            bad = (~(inputs.abs() <= MAX_INPUT)).flatten(1).any(dim=1).nonzero().flatten().tolist()
            raise ValueError(f"x has NaN, infinite or absurdly large numbers in rows {_few(bad)}: drop or mend them")
        return inputs

    def _checked_classes(self, y: Array, n: int) -> tuple[Tensor, int]:
        """The classes (n,), and how many classes there have to be for them."""
        classes = _whole_numbers(y, "y", n)
        numbers = classes.tolist()  # a few numbers are compared faster outside torch
        lowest, highest = min(numbers), max(numbers)
        if lowest < 0:
            raise ValueError(f"label {lowest} is negative: number the classes from 0")
        room = self.settings.n_classes
        if room is not None and highest >= room:
            raise ValueError(
                f"label {highest}, but the model has room for {room} classes: build it with n_classes={highest + 1} "
                "or more, or without n_classes to let it grow"
            )
        if highest >= MAX_CLASSES:
            raise ValueError(f"label {highest} would make a head of {highest + 1} rows: number the classes from 0")
        return classes, highest + 1

    def _checked_tasks(self, task: int | Array | None, n: int, *, learning: bool) -> Tensor:
        setting = self.settings.setting
        verb, wanted = ("observe", learns_by_task) if learning else ("predict", predicts_by_task)
        if not wanted(setting):
            if task is not None:
                raise ValueError(f"{verb} got a task, but the setting '{setting}' does not know it then: leave it out")
            return torch.full((n,), NO_TASK, dtype=torch.int64)
        if task is None:
            raise ValueError(
                f"{verb} got no task, but the setting '{setting}' needs it: pass task=…, or build with setting='free'"
            )
        tasks = _whole_numbers(_for_each(task, n), "task", n)
        numbers = set(tasks.tolist())
        if min(numbers) < 0 or max(numbers) >= MAX_TASKS:
            raise ValueError(f"task {min(numbers)} to {max(numbers)}: number the tasks from 0 to {MAX_TASKS - 1}")
        if not learning:
            for number in sorted(numbers):
                if not self.method.model.seen.knows_task(number):
                    raise ValueError(f"task {number} was never observed: predict for a task that was")
        return tasks


class DriftWatch:
    """Follows how far each class moves from now on, on samples of your own.

    Begin with `learner.watch(DriftWatch(learner, x, y))`.

    Attributes:
        history: by the number of batches observed, the distance of each class's samples from where they were when the
            watch began, in spreads of the class (its root-mean-square distance to its mean).
    """

    def __init__(self, learner: Learner, x: Array, y: Array, *, every: int = 100) -> None:
        self.x = x
        self.y = _whole_numbers(y, "y", len(x))
        self.every = every
        self.then = learner.features(x).cpu()
        self.history: dict[int, dict[int, float]] = {}

    def __call__(self, learner: Learner) -> None:
        if learner.n_observed % self.every == 0:
            self.history[learner.n_observed] = self.moved(learner)

    def moved(self, learner: Learner) -> dict[int, float]:
        """How far each class has moved by now."""
        now = learner.features(self.x).cpu()
        return {c: moved(now[self.y == c], self.then[self.y == c]) for c in sorted(set(self.y.tolist()))}


def load_learner(
    path: str | Path, *, backbone: nn.Module | None = None, device: str | torch.device = "cpu", trust_code: bool = False
) -> Learner:
    """Load the learner saved at `path`; if that file is damaged, the one saved before it, with a warning.

    Args:
        path: what `Learner.save` wrote, or the checkpoint of a run, or the folder of a run.
        backbone: the module that the learner was built with, if it was one of your own.
        trust_code: also import classes of other packages that the file names ('package.module:Class'). Only for
            files that you made: importing runs code.

    A file may come from a stranger. It is checked before anything of a size that it states is allocated, and one that
    is not the state of a learner raises CorruptCheckpoint or another ValueError.

    Example:
        >>> import tempfile
        >>> learner = Learner("er", n_classes=2)
        >>> loss = learner.observe([[0.0, 1.0], [1.0, 0.0]], [0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     learner.save(f"{folder}/learner.holdfast")
        ...     again = load_learner(f"{folder}/learner.holdfast")
        >>> again.n_observed
        1
    """
    path = Path(path)
    state = read_checkpoint(path / CHECKPOINT if path.is_dir() else path)
    learner = Learner(backbone="mlp" if backbone is None else backbone, device=device)
    try:
        if "settings" not in state and isinstance(state.get("learner"), dict):
            state = state["learner"]  # of a run
        learner.settings = _stored_settings(state["settings"])
        needs_backbone = state["own_backbone"] and backbone is None
    except Exception as error:
        raise _not_a_learner(path, error) from error
    parts = [getattr(learner.settings, field) for field in ("method", "backbone", "selection", "retrieval")]
    if not trust_code and (foreign := [part.name for part in parts if ":" in part.name]):
        raise ValueError(
            f"{path} names code of another package ({foreign[0]}): load it with trust_code=True if you made it"
        )
    if needs_backbone:
        raise ValueError(f"{path} was saved with a backbone of your own: pass it as load_learner(path, backbone=…)")
    try:
        learner.load_state_dict(state)
    except Exception as error:  # whatever a file made to do harm leads to
        raise _not_a_learner(path, error) from error
    return learner


def _not_a_learner(path: Path, error: Exception) -> CorruptCheckpoint:
    what = readable(error) if isinstance(error, ValidationError) else error or type(error).__name__
    return CorruptCheckpoint(f"{path} is not the state of a learner: {what}")


def _settings(method: str | dict[str, Any], backbone: Any, given: dict[str, Any]) -> LearnerSettings:
    part = Part.model_validate(method)
    known = set(LearnerSettings.model_fields)
    options = options_of("methods", part.name)
    for name in given:
        among = "the settings of a learner"
        check_setting(name, sorted(known | set(options)), among=among, fields=LearnerSettings.model_fields)
    part = part.with_options(**{name: value for name, value in given.items() if name not in known})
    fields = {name: value for name, value in given.items() if name in known}
    if not isinstance(backbone, nn.Module):
        fields["backbone"] = backbone
    try:
        settings = LearnerSettings.model_validate({"method": part, **fields})
    except ValidationError as error:
        raise Unknown(readable(error)) from error
    return resolved_settings(settings)


def _stored_settings(saved: Any) -> LearnerSettings:
    """Return the settings in a file, which may be from before some options existed."""
    return resolved_settings(LearnerSettings.model_validate(saved), stored=True)


def readable(error: ValidationError) -> str:
    """What is wrong with settings, a sentence a field."""
    lines = []
    for problem in error.errors():
        where = ".".join(str(step) for step in problem["loc"])
        lines.append(f"{where or 'settings'}: {problem['msg']}, not {shown(problem['input'])}")
    return "; ".join(lines)


def _usable(device: str | torch.device) -> torch.device:
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device '{device}' cannot be used here ({reason}): 'cpu' always can") from error
    return found


def _as_tensor(value: Array, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    try:
        array = np.asarray(value)
        if not array.flags.writeable:
            array = array.copy()
        return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} cannot be read as numbers: {error}") from error


def _for_each(task: int | Array, n: int) -> Array:
    """One task for each of n samples, where one number is given for all."""
    if isinstance(task, int | np.integer):
        return [int(task) if not isinstance(task, bool) else task] * n
    return task.expand(n) if isinstance(task, Tensor) and task.ndim == 0 else task


def _whole_numbers(value: Array, name: str, n: int) -> Tensor:
    numbers = _as_tensor(value, name)
    if numbers.shape != (n,):
        raise ValueError(f"{name} has shape {tuple(numbers.shape)} for {n} samples: give ({n},), one number a sample")
    if n == 0:
        raise ValueError(f"{name} is empty: give at least one")
    if numbers.dtype == torch.int64:
        return numbers
    if numbers.dtype == torch.bool or numbers.is_complex():
        raise ValueError(f"{name} has dtype {_short(numbers.dtype)}: give whole numbers")
    whole = numbers.to(torch.int64)
    if numbers.is_floating_point() and not torch.equal(whole.to(numbers.dtype), numbers):
        bad = (whole.to(numbers.dtype) != numbers).nonzero().flatten().tolist()
        raise ValueError(f"{name} is not whole in rows {_few(bad)}: give whole numbers")
    return whole


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _few(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:5]))
    return shown if len(rows) <= 5 else f"{shown} and {len(rows) - 5} more"
