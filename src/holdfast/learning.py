"""The state of a learner, and one step of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.build import asked_settings, build_method, build_model, fitting_parts, usable_device
from holdfast.core.batch import Batch
from holdfast.core.classes import learns_by_task
from holdfast.core.inputs import (
    Array,
    as_array,
    check_column_names,
    checked_classes,
    checked_inputs,
    checked_tasks,
    checked_weights,
    column_names_of,
    kept_rows,
    whole_numbers,
)
from holdfast.core.journaled import Journaled
from holdfast.core.labels import Numbered
from holdfast.core.state import Stateful
from holdfast.core.transactions import Transactional
from holdfast.memory.storage import Memory, parse_bytes
from holdfast.methods._base import Method, ReplayMethod
from holdfast.practice import Answers, Practice, remembered_inputs
from holdfast.predictor import Predictor
from holdfast.settings import LearnerSettings

Labelled = Array  # labels may be of any kind
_NUMBERS = Answers()  # of a learner whose labels are whole numbers, and which learns no temperature


class Learning(Journaled, Transactional, Predictor, Stateful):
    """State of a learner, and how a batch changes it. What a caller calls is in `Learner` and its other bases."""

    settings: LearnerSettings
    practice: Practice | None
    n_observed: int
    is_open: bool

    def _set_up(
        self,
        settings: LearnerSettings,
        backbone: nn.Module | None,
        input_shape: Sequence[int] | None,
        scale: float | None,
        mean: Tensor | float,
        device: str | torch.device,
        practice: Practice | None,
    ) -> None:
        Transactional.__init__(self)
        self.practice = practice
        self.settings = settings
        self.device = usable_device(device)
        self.scale = scale
        self.mean = mean
        self.input_shape = tuple(input_shape) if input_shape is not None else None
        self.input_dtype: torch.dtype | None = None
        self.n_observed = 0  # batches
        self.running_task: int | None = None  # learned from, and not ended yet
        self._backbone = backbone
        self._watchers: list[Callable[[Any], None]] = []
        self._method: Method | None = None
        if self.input_shape is not None:
            self._method = self._built(self.input_shape)

    @property
    def method(self) -> Method:
        """Return the method, with its model; RuntimeError before the first batch, unless a shape was given."""
        self._is_changing()
        if self._method is None:
            raise RuntimeError("nothing was learned yet: call observe(x, y) first, or give input_shape")
        return self._method

    @property
    def memory(self) -> Memory | None:
        """Return what is remembered; None for a method without a memory."""
        return self.method.memory if isinstance(self.method, ReplayMethod) else None

    @property
    def answers(self) -> Answers:
        """Return what turns scores into labels and probabilities."""
        return _NUMBERS if self.practice is None else self.practice.answers

    def _observe(self, x: Array, y: Labelled, task: int | Array | None, sample_weight: float | Array | None) -> float:
        y = as_array(y)
        inputs = checked_inputs(x, shape=self.input_shape, dtype=self.input_dtype)
        if self.practice is not None and (names := column_names_of(x) or self.practice.column_names):
            check_column_names(names, self.practice.column_names, inputs.shape[1])
            self.practice.column_names = names
        weights = checked_weights(sample_weight, len(inputs))
        if weights is not None and not bool((kept := weights > 0).all()):
            y, task = kept_rows(y, kept, "y"), kept_rows(task, kept, "task")
            inputs, weights = inputs[kept.to(inputs.device)], weights[kept]
            if not len(weights):
                return 0.0
            weights = checked_weights(weights, len(inputs))
        batch, n_classes, numbered = self._checked_batch(inputs, y, task)
        return self._learn(batch, weights, n_classes, numbered)

    def _learn(self, batch: Batch, weights: Tensor | None, n_classes: int, numbered: Numbered | None) -> float:
        if self.input_dtype is None:
            self._begin(batch)
        method, practice = self.method, self.practice
        x = batch.x
        if weights is not None:
            batch = method.weigh(batch, weights)
        if learns_by_task(self.settings.setting):
            self._turn_to(batch.task.tolist())
        batch = batch if self.device.type == "cpu" else batch.to(self.device)
        looked = None if practice is None else practice.look(method, batch, self.n_observed)
        seen = method.model.seen
        if n_classes > seen.n_classes:
            self._grow(method, n_classes)
            self._check_budget(method)
        n_seen = len(seen.pairs)
        seen.add(batch.y, batch.task)
        method.model.take_scale(batch.x)
        if practice is None:
            loss = method.observe(batch)
            method.check_finite()
        else:
            loss = practice.learn(method, batch)
        method.settle()
        self.n_observed += 1
        if practice is not None:
            practice.watch.look(x, practice.column_names)
            brings_classes = len(seen.pairs) > n_seen
            practice.settle(method, batch, loss, looked, self.n_observed, brings_classes=brings_classes)
            if numbered is not None:
                practice.answers.labels.take(numbered)
        for watcher in self._watchers:
            watcher(self)
        return loss

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
            self._end_task()
        self.running_task = tasks[-1]

    def _end_task(self) -> None:
        if self.running_task is not None:
            self.method.end_task(self.running_task)
            self.running_task = None

    def _announce(self, classes: list[int], n_classes: int, task: int, numbered: Numbered | None) -> None:
        method = self.method
        if n_classes > method.model.head.n_classes:
            self._grow(method, n_classes)
        method.model.seen.announce(classes, task)
        if numbered is not None:
            self.answers.labels.take(numbered)

    def _grow(self, method: Method, n_classes: int) -> None:
        if self.practice is None:
            method.grow(n_classes)
        else:
            self.practice.grow(method, n_classes, self.n_observed)

    def _check_budget(self, method: Method) -> None:
        """Raise if a method without a memory exceeds a budget in bytes; a memory looks after its own."""
        if isinstance(method, ReplayMethod) or not isinstance(self.settings.memory, str):
            return
        if (needed := method.bytes_of_classes()) > parse_bytes(self.settings.memory):
            n = method.model.head.n_classes
            raise ValueError(
                f"{n} classes take {needed:,} bytes (see `memory_report()`), more than memory='{self.settings.memory}':"
                " give it more"
            )

    def _built(self, input_shape: tuple[int, ...]) -> Method:
        if self.is_open:
            parts = fitting_parts(input_shape)
            others = LearnerSettings.model_fields.keys() - {"method", "backbone", "head", "selection"}
            fields = {name: getattr(self.settings, name) for name in others} | parts
            self.settings, self.is_open = asked_settings(fields.pop("method"), fields, {}), False
        model = build_model(self.settings, input_shape, scale=self.scale, mean=self.mean, backbone=self._backbone)
        method = build_method(self.settings, model.to(self.device))
        if self.practice is not None:
            own = self.scale is not None or model.has_mean or self._backbone is not None
            self.practice.begin(method, input_shape, as_they_come=own)
        return method

    def _checked_batch(
        self, inputs: Tensor, y: Labelled, task: int | Array | None
    ) -> tuple[Batch, int, Numbered | None]:
        """Return a batch, the classes that there have to be for it, and its labels where these are no classes."""
        classes, n_classes, numbered = self._classes_of(y, len(inputs))
        batch = Batch(inputs, classes, checked_tasks(task, len(inputs), self.settings.setting, learning=True))
        return batch, n_classes, numbered

    def _classes_of(self, y: Labelled, n: int) -> tuple[Tensor, int, Numbered | None]:
        room = self.settings.n_classes
        labels = self.answers.labels
        if self.practice is None or labels.are_classes(y, room=room):
            return *checked_classes(y, n, room=room), None
        numbered = labels.preview(y, n_classes=0 if self._method is None else self._known_classes(), room=room)
        whole_numbers(numbered.y, "y", n)  # as many as there are samples
        return numbered.y, numbered.n_classes, numbered

    def _known_classes(self) -> int:
        """Return the number of classes up to the highest that was seen."""
        seen = self.method.model.seen.classes()
        return int(seen[-1]) + 1 if len(seen) else 0

    def _around(self, what: str) -> Practice:
        if self.practice is None:
            raise ValueError(f"a learner of an experiment has nothing around its method, so no {what}: build a Learner")
        return self.practice

    def _remembered(self) -> Tensor:
        return remembered_inputs(self.method)
