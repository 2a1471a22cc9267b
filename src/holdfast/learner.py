"""The door for practitioners and for the runner: observe, predict, save."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from holdfast.build import asked_settings, build_method, build_model, fitting_parts, usable_device
from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.calls import CallJournal
from holdfast.core.checkpoint import CopiedState, checksum_of, write_copy
from holdfast.core.classes import Setting, learns_by_task
from holdfast.core.detectors import DetectorName
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
from holdfast.core.journaled import Journaled, journaled
from holdfast.core.labels import Numbered
from holdfast.core.model import HeadKind
from holdfast.core.optimizers import OptimizerName
from holdfast.core.state import State, Stateful
from holdfast.core.transactions import Transactional
from holdfast.guard import Guard, Rollback
from holdfast.ledger import memory_report
from holdfast.memory.storage import Memory, parse_bytes
from holdfast.methods._base import Method, ReplayMethod
from holdfast.practice import WAITING, Answers, Drift, Practice, PracticeOptions, gone_back, remembered_inputs
from holdfast.predictor import MOST_EXAMPLES, Predictor, Snapshot
from holdfast.saved import restored_method, stored_settings
from holdfast.settings import LearnerSettings, resolved_settings

Named = str | dict[str, Any]  # a part by its name, or {"name": …, option: …}
Labelled = Array  # labels may be of any kind
_NUMBERS = Answers()  # of a learner whose labels are whole numbers, and which learns no temperature

NOTHING_ASKED: tuple[Any, ...] = (
    None,
    None,
    None,
    None,
    "sgd",
    0.1,
    0.0,
    {},
)  # of method, backbone, and what only some methods take


class Learner(Journaled, Transactional, Predictor, Stateful):
    """Learn a stream batch by batch, in bounded memory.

    Args:
        method: a name of `holdfast list methods`, or {"name": …, option: …}. If neither it nor a backbone is named,
            nor an option, an optimiser or a rate, the first batch decides: `hedge` for vectors of up to 64 numbers,
            `slda` for longer ones, both on `identity`, else `er` on `mlp`.
        backbone: a name of `holdfast list backbones`, {"name": …, option: …}, or any module that makes
            features (n, n_features) of inputs.
        input_shape: of one sample; taken from the first batch if not given.
        scale, mean: an input first becomes x * scale - mean. By default bytes are scaled by 1/255.
        device: where to learn.
        setting: who knows the task: `task`, `class`, `domain` or `free`.
        head: `linear` or `cosine`; None as the method wants it. cosine_scale: of a cosine head.
        n_classes: None lets the head grow with the classes that come.
        memory: samples, or bytes as "5 MB".
        selection: who stays in memory; None as the method wants it. retrieval: who is replayed.
        optimizer, lr, momentum: how weights are changed; momentum counts for sgd only.
        seed: of all random numbers.
        journal: a folder. Whatever is learned is on disk there before it is learned, and is learned again from there
            after a crash. See `load_learner` for a learner that was saved.
        standardise: bring each column of inputs to a running mean of 0 and a standard deviation of 1. By default
            vectors of floats are. They stay as they are where scale, mean or a backbone of one's own is given. Methods
            such as `hedge` and `slda` take them as they are too.
        unknown: the share of samples of known classes that `decision` may call unknown, such as 0.05.
        waiting: inputs that can wait for their labels, see `predict` and `label`.
        boundaries: `adwin`, `ddm` or `page_hinkley` find the ends of tasks in the setting `free`; see `on_drift`.
        recover: go back to the last good weights, at half the learning rate, where learning runs away.
        column_names: of inputs that are vectors, for warnings. A frame has its own. They are not saved.
        options: any option of the method (replay_size, …). `passes` is 1 unless it is stated, where the network has no
            batch statistics: new and replayed samples are learned in one pass, which is the same but for rounding.

    Example:
        >>> learner = Learner("er", memory="1 MB", lr=0.1)
        >>> loss = learner.observe([[0.0, 1.0], [1.0, 0.0]], [0, 1])
        >>> learner.n_observed, learner.predict([[0.0, 1.0]]).shape
        (1, torch.Size([1]))
    """

    def __init__(
        self,
        method: Named | None = None,
        *,
        backbone: Named | nn.Module | None = None,
        input_shape: Sequence[int] | None = None,
        scale: float | None = None,
        mean: Tensor | float = 0.0,
        device: str | torch.device = "cpu",
        setting: Setting = "free",
        head: HeadKind | None = None,
        cosine_scale: float = 10.0,
        n_classes: int | None = None,
        memory: int | str = 1000,
        selection: Named | None = None,
        retrieval: Named = "uniform",
        optimizer: OptimizerName = "sgd",
        lr: float = 0.1,
        momentum: float = 0.0,
        seed: int = 0,
        standardise: bool | None = None,
        unknown: float | None = None,
        waiting: int = WAITING,
        boundaries: DetectorName | None = None,
        recover: bool = True,
        column_names: Sequence[str] = (),
        journal: str | Path | CallJournal | None = None,
        **options: Any,
    ) -> None:
        fields: dict[str, Any] = {
            "setting": setting,
            "head": head,
            "cosine_scale": cosine_scale,
            "n_classes": n_classes,
            "memory": memory,
            "retrieval": retrieval,
            "optimizer": optimizer,
            "lr": lr,
            "momentum": momentum,
            "seed": seed,
        }
        if selection is not None:
            fields["selection"] = selection
        own = backbone if isinstance(backbone, nn.Module) else None
        if not isinstance(backbone, nn.Module):
            fields["backbone"] = backbone or "mlp"
        if boundaries is not None and setting != "free":
            raise ValueError(
                f"boundaries are found in the setting 'free' only, and '{setting}' states them: leave it out"
            )
        # True: the first batch decides about the method and the backbone.
        self.is_open = (method, backbone, head, selection, optimizer, lr, momentum, options) == NOTHING_ASKED
        around = Practice(PracticeOptions(standardise, unknown, waiting, boundaries, recover))
        around.column_names = [str(name) for name in column_names]
        settings = asked_settings(method or "er", fields, options, network=own)
        self._set_up(settings, own, input_shape, scale, mean, device, around)
        if journal is not None:
            self.journal_into(journal)

    @classmethod
    def from_settings(
        cls,
        settings: LearnerSettings,
        *,
        backbone: nn.Module | None = None,
        input_shape: Sequence[int] | None = None,
        scale: float | None = None,
        mean: Tensor | float = 0.0,
        device: str | torch.device = "cpu",
        practice: PracticeOptions | None = None,
    ) -> Self:
        """Return a learner of settings that are stated as one value.

        Args:
            practice: what a learner has around its method. None for an experiment: inputs stay as they are, nothing is
                watched, and labels are whole numbers.
            backbone: a module of one's own, which stands in for the backbone that is named.

        Example:
            >>> Learner.from_settings(LearnerSettings(method="ncm", backbone="identity")).settings.method.name
            'ncm'
        """
        learner = cls.__new__(cls)
        learner.is_open = False
        around = None if practice is None else Practice(practice)
        learner._set_up(resolved_settings(settings), backbone, input_shape, scale, mean, device, around)
        return learner

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
        self._watchers: list[Callable[[Learner], None]] = []
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

    @journaled
    def observe(
        self,
        x: Array,
        y: Labelled,
        task: int | Array | None = None,
        *,
        sample_weight: float | Array | None = None,
    ) -> float:
        """Learn n samples once; return their loss.

        Args:
            x: (n, …) inputs: tensor, array, list or frame; bytes or floats. Warnings name the columns of a frame.
            y: (n,) labels: whole numbers from 0 are the classes themselves; texts, other numbers, tuples and None are
                numbered as they come. See `classes_`.
            task: of all samples, or (n,); in every setting but `free`.
            sample_weight: (n,) or one number, from 0: how much each sample counts; by default 1. It multiplies the
                sample's part of the loss. For a method that adds up or stores samples, as `slda` and `knn` do, it is a
                count. A sample of weight 0 is left out, as if it had not come. Memory keeps the weight, and replay
                honours it. See `Method.takes_weights`.

        A batch is learned whole or not at all: whatever is raised, KeyboardInterrupt included, leaves every bit as it
        was. Bad input raises ValueError, and a step that would make weights NaN or infinite raises Diverged. Another
        thread that observes waits.
        """
        return self.change(lambda: self._observe(x, y, task, sample_weight))

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

    def predict(
        self,
        x: Array,
        task: int | Array | None = None,
        *,
        top: int | None = None,
        ids: Sequence[Any] | None = None,
    ) -> Any:
        """(n,) Return the label of each sample: a tensor of whole numbers, or a list where labels are others.

        Args:
            x: (n, …) inputs: tensor, array or list; bytes or floats.
            task: of all samples, or (n,); in the setting `task`, and there only.
            top: give so many labels a sample (n, top), the likeliest first; fewer where fewer compete.
            ids: of the samples, under which their inputs wait for their labels; see `label`.

        Example:
            >>> learner = Learner("ncm", backbone="identity")
            >>> loss = learner.observe([[0.0, 1.0], [1.0, 0.0]], ["up", "right"])
            >>> learner.predict([[0.1, 0.9], [0.8, 0.3]], ids=["mail 7", "mail 8"])
            ['up', 'right']
            >>> loss = learner.label(["mail 8"], ["up"])
            >>> learner.n_observed
            2
        """
        said = super().predict(x, task, top=top)
        if ids is not None:
            self.wait(ids, x)
        return said

    @journaled
    def wait(self, ids: Sequence[Any], x: Array) -> None:
        """Keep inputs under `ids` until `label` learns them; `predict` with ids does so too."""
        with self._held:
            inputs = checked_inputs(x, shape=self.input_shape, dtype=self.input_dtype)
            self._around("ids").waiting.put(ids, inputs)
            self.n_done += 1

    @journaled
    def label(
        self,
        ids: Sequence[Any],
        y: Labelled,
        task: int | Array | None = None,
        *,
        sample_weight: float | Array | None = None,
    ) -> float:
        """Learn inputs that were predicted with `ids`, now that their labels are known; return their loss.

        Labels may come in any order, and late. The oldest inputs expire where more wait than `waiting` says; see
        `practice.waiting.n_expired`. ValueError changes nothing: the inputs go on waiting.
        """
        return self.change(lambda: self._label(ids, y, task, sample_weight))

    def _label(
        self, ids: Sequence[Any], y: Labelled, task: int | Array | None, sample_weight: float | Array | None
    ) -> float:
        waiting = self._around("label").waiting
        loss = self._observe(waiting.look(ids), y, task, sample_weight)
        waiting.take(ids)
        return loss

    def on_drift(self, callback: Callable[[Drift], None]) -> None:
        """Call `callback` at each boundary that is found; callbacks are not saved.

        Example:
            >>> found = []
            >>> Learner("er", boundaries="adwin").on_drift(found.append)
        """
        practice = self._around("on_drift")
        if practice.boundaries is None:
            raise ValueError("no boundaries are looked for: build the learner with boundaries='adwin'")
        practice.callbacks.append(callback)

    @journaled
    def guard(
        self, x: Array, y: Labelled, task: int | Array | None = None, *, drop: float = 0.05, every: int = 20
    ) -> None:
        """Go back to the last good weights when accuracy on held-out samples has fallen.

        Args:
            x: (n, …) inputs that are never learned; some hundreds find a fall of some points. They are kept.
            y: (n,) labels, some of which may come later.
            task: where a prediction needs it.
            drop: the fall below the best accuracy that is allowed; more is a fall if it is beyond chance, see `Guard`.
            every: batches between two measurements.

        A fall gives a `GuardWarning`, and calls what `on_rollback` named. Memory stays as it is. `unguard` ends it.

        Example:
            >>> learner = Learner("slda")
            >>> x, y = torch.tensor([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.2]]), torch.tensor([0, 0, 1, 1])
            >>> loss = learner.observe(x, y)
            >>> learner.guard(x, y, every=1)
            >>> learner.practice.guard.best
            1.0
        """
        practice = self._around("guard")
        if self.input_dtype is None:
            raise RuntimeError("nothing was learned yet: call observe(x, y) first, and then guard")
        self.change(lambda: self._guard(practice, x, y, task, drop, every))

    def _guard(
        self, practice: Practice, x: Array, y: Labelled, task: int | Array | None, drop: float, every: int
    ) -> None:
        inputs = checked_inputs(x, shape=self.input_shape, dtype=self.input_dtype)
        classes, _, numbered = self._classes_of(y, len(inputs))
        tasks = checked_tasks(task, len(inputs), self.settings.setting, learning=False)
        practice.guard = Guard(inputs, classes, tasks, drop=drop, every=every)
        practice.look_after(self.method, self.n_observed)
        if numbered is not None:
            self.answers.labels.take(numbered)

    @journaled
    def unguard(self) -> None:
        """Measure no more, and let go of held-out samples and good weights."""
        practice = self._around("guard")

        def let_go() -> None:
            practice.guard = None

        self.change(let_go)

    def on_rollback(self, callback: Callable[[Rollback], None]) -> None:
        """Call `callback` each time a guard goes back; callbacks are not saved."""
        self._around("on_rollback").rollback_callbacks.append(callback)

    @journaled
    def end_task(self) -> None:
        """Say that the task is over; observing another task says it too."""
        if not learns_by_task(self.settings.setting):
            raise ValueError("in the setting 'free' tasks are not known, so none ends: leave end_task out")
        self.change(self._end_task)

    def _end_task(self) -> None:
        if self.running_task is not None:
            self.method.end_task(self.running_task)
            self.running_task = None

    @journaled
    def announce(self, classes: Sequence[Any], task: int | None = None) -> None:
        """Say which classes a task has before its samples come, where that is known."""
        y, n_classes, numbered = self._classes_of(list(classes), len(classes))
        tasks = checked_tasks(task, len(classes), self.settings.setting, learning=True)
        self.change(lambda: self._announce(y.tolist(), n_classes, int(tasks[0]), numbered))

    def _announce(self, classes: list[int], n_classes: int, task: int, numbered: Numbered | None) -> None:
        method = self.method
        if n_classes > method.model.head.n_classes:
            self._grow(method, n_classes)
        method.model.seen.announce(classes, task)
        if numbered is not None:
            self.answers.labels.take(numbered)

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
        if self.opened_journal is not None:
            raise ValueError("a merge cannot stand in a journal: close_journal, merge, save, and journal_into another")
        if other is self:
            raise ValueError("a learner cannot be merged with itself: every sample would count twice")
        first, second = sorted((self, other), key=id)  # two threads that merge crosswise do not wait for each other
        with first._held, second._held:
            self._check_mergeable(other)
            if other._method is not None:
                self.change(lambda: self._merge(other))

    def _merge(self, other: Learner) -> None:
        begins = self._method is None
        method = self._built(tuple(other.input_shape or ())) if self._method is None else self._method
        method.merge(other.method)  # which raises before it changes anything
        if begins:
            self._method, self.input_shape = method, other.input_shape
        self.input_dtype = self.input_dtype or other.input_dtype
        method.model.seen.join(other.method.model.seen)
        self.n_observed += other.n_observed

    @journaled
    def forget(self, x: Array, y: Labelled) -> None:
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
        self.change(lambda: self._forget(x, y))

    def _forget(self, x: Array, y: Array) -> None:
        inputs = checked_inputs(x, shape=self.input_shape, dtype=self.input_dtype)
        classes, n_classes, _ = self._classes_of(y, len(inputs))
        method = self.method
        if n_classes > method.model.seen.n_classes:
            raise ValueError(f"label {n_classes - 1} was never learned: forget only what was")
        batch = Batch(inputs, classes, torch.full_like(classes, NO_TASK))
        gone = method.forget(batch if self.device.type == "cpu" else batch.to(self.device))
        method.model.seen.remove(gone)

    def _check_mergeable(self, other: Learner) -> None:
        if other.settings != self.settings:
            raise ValueError("the two learners have other settings: only those of the same settings can be merged")
        if self._method is None or other._method is None:
            return
        for name in ("input_shape", "scale"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(f"the two learners have another {name}: {getattr(self, name)}, {getattr(other, name)}")
        if None not in (self.input_dtype, other.input_dtype) and self.input_dtype != other.input_dtype:
            raise ValueError(f"the two learners take {self.input_dtype} and {other.input_dtype}: convert one's samples")
        if not self.method.model.has_the_backbone_of(other.method.model):
            raise ValueError("the two learners have other backbones: their features cannot be added up")

    def snapshot(self) -> Snapshot:
        """Return an immutable predictor of this moment, for any number of threads, while this learner goes on.

        It costs a copy of the weights, and not of the memory. See `Snapshot`.
        """
        with self._turn(), self._lock:
            return Snapshot(
                self.method.copy_for_predicting(),
                self.settings,
                input_shape=self.input_shape,
                input_dtype=self.input_dtype,
                device=self.device,
                n_observed=self.n_observed,
                answers=copy.deepcopy(self.answers),
                remembered=None if self.answers.novelty is None else self._remembered().clone(),
            )

    def export(
        self, path: str | Path, examples: Array | None = None, *, about: Mapping[str, Any] | None = None
    ) -> None:
        """Write a .onnx or .pt2 file that scores without holdfast; see `Snapshot.export`.

        Args:
            examples: (n, …) inputs on which the file is compared; without them, samples from memory or random ones.

        Example:
            >>> import tempfile
            >>> learner = Learner("slda", backbone="identity")
            >>> loss = learner.observe([[0.0, 1.0], [1.0, 0.0], [0.2, 1.0], [1.0, 0.1]], [0, 1, 0, 1])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     learner.export(f"{folder}/model.pt2")
            ...     scores = torch.export.load(f"{folder}/model.pt2").module()(torch.tensor([[0.1, 1.0]]))
            >>> scores.argmax(dim=1)
            tensor([0])
        """
        with self._turn(), self._lock:
            snapshot = self.snapshot()
            memory = self.memory
            if examples is None and memory is not None and len(memory):
                examples = memory.x[:MOST_EXAMPLES].clone()
        snapshot.export(path, examples, about=about)

    def memory_report(self) -> dict[str, int]:
        """Return the bytes that are kept between two batches, by kind: weights, copies of them, memory, tables.

        A memory in bytes ("5 MB") is a budget of the slots, with what is kept beside each, and of everything that
        grows with classes. Weights that are there from the beginning, and what a step needs for itself, come on top.

        Example:
            >>> learner = Learner("er", memory=100, input_shape=(4,))
            >>> loss = learner.observe([[0.0, 1.0, 2.0, 3.0]], [0])
            >>> report = learner.memory_report()
            >>> report["memory, x"], report["memory, y"]
            (1600, 800)
        """
        with self._turn(), self._lock:
            report = memory_report(self.method, self._undo)
            guard = None if self.practice is None else self.practice.guard
            return report if guard is None else report | {"guard": guard.nbytes}

    def watch(self, watcher: Callable[[Learner], None]) -> None:
        """Call `watcher` after each batch; watchers are not saved."""
        self._watchers.append(watcher)

    def save(self, path: str | Path) -> None:
        """Write everything to one file; at every instant a whole file is at `path`, the one before beside it.

        A journal forgets what the file saved before this one holds, so save one learner to one path.
        """
        with self.journal_at_rest() as mark, self._turn(), self._lock:
            copied = CopiedState({**self.state_dict(), **mark})
        write_copy(Path(path), copied)
        self.journal_forgets(mark)

    def journal_into(self, journal: str | Path | CallJournal, *, after: int = 0) -> int:
        """Learn again what a journal holds, and write all that is learned later into it first.

        Args:
            journal: a folder, or a `CallJournal` with a bound of its own.
            after: the number of the last record that this learner holds; `load_learner` knows it.

        Returns the number of calls that were made again. `close_journal` lets go of the folder.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     learner = Learner("er", n_classes=2, journal=folder)
            ...     loss = learner.observe([[0.0, 1.0], [1.0, 0.0]], [0, 1])
            ...     learner.close_journal()  # or a crash
            ...     again = Learner("er", n_classes=2)
            ...     n_calls = again.journal_into(folder)
            ...     again.close_journal()
            >>> n_calls, again.n_observed
            (1, 1)
        """
        return self.open_journal(journal, {"began as": checksum_of(self.state_dict())}, after=after)

    def state_dict(self) -> State:
        with self._turn(), self._lock:
            self._is_changing()
            return {
                "settings": self.settings.model_dump(mode="json"),
                **({"is_open": True} if self.is_open else {}),
                "own_backbone": self._backbone is not None,
                "scale": self.scale,
                "mean": self.mean,
                "input_shape": self.input_shape,
                "input_dtype": None if self.input_dtype is None else str(self.input_dtype).removeprefix("torch."),
                "n_observed": self.n_observed,
                "running_task": self.running_task,
                "practice": None if self.practice is None else self.practice.state_dict(),
                "method": None if self._method is None else self._method.state_dict(),
            }

    def load_state_dict(self, state: State) -> None:
        """Restore; a state that does not fit raises, and leaves everything as it was."""
        self.change(lambda: self._restore(state))

    def _restore(self, state: State) -> None:
        try:
            if stored_settings(state["settings"]) != self.settings:
                raise ValueError("the saved state is of a learner with other settings: use load_learner")
            method = restored_method(self.settings, state, self._backbone, self.device)
            around = state.get("practice")  # files from before it was there have none
            self.practice = None if around is None else Practice.of(around)
            if self.practice is not None and self.practice.guard is not None:
                self._check_guard(self.practice.guard, state)
            self.scale, self.mean, self.input_shape = state["scale"], state["mean"], state["input_shape"]
            self.input_dtype = None if state["input_dtype"] is None else getattr(torch, state["input_dtype"])
            self.n_observed, self.running_task = state["n_observed"], state["running_task"]
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"this is not the state of a learner: {error!r}") from error
        self._method, self.is_open = method, state.get("is_open") is True

    def _check_guard(self, guard: Guard, state: State) -> None:
        """Raise an error unless the weights that a guard kept are some of this learner."""
        if state["method"] is None or tuple(guard.x.shape[1:]) != state["input_shape"]:
            raise ValueError("the saved guard has samples of another shape than the learner")
        saved = {**state, "method": gone_back(state["method"], guard.good)}
        restored_method(self.settings, saved, self._backbone, self.device)

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

    def _begin(self, batch: Batch) -> None:
        """Take from the first batch what was left open."""
        shape = tuple(batch.x.shape[1:])
        method = self._method or self._built(shape)
        if isinstance(method, ReplayMethod):
            method.memory.check(batch)
        self._method, self.input_shape, self.input_dtype = method, shape, batch.x.dtype

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

    def _turn_to(self, tasks: list[int]) -> None:
        """End the running task if the samples are all of another; a mixed batch ends none."""
        if self.running_task is not None and set(tasks) != {self.running_task} and len(set(tasks)) == 1:
            self._end_task()
        self.running_task = tasks[-1]

    def _built(self, input_shape: tuple[int, ...]) -> Method:
        if self.is_open:
            parts = fitting_parts(input_shape)
            others = LearnerSettings.model_fields.keys() - {"method", "backbone", "head", "selection"}
            fields = {name: getattr(self.settings, name) for name in others} | {"backbone": parts["backbone"]}
            self.settings, self.is_open = asked_settings(parts["method"], fields, {}), False
        model = build_model(self.settings, input_shape, scale=self.scale, mean=self.mean, backbone=self._backbone)
        method = build_method(self.settings, model.to(self.device))
        if self.practice is not None:
            own = self.scale is not None or model.has_mean or self._backbone is not None
            self.practice.begin(method, input_shape, as_they_come=own)
        return method
