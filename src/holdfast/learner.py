"""The door for practitioners and for the runner: observe, predict, save."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from holdfast.build import asked_settings
from holdfast.core.calls import CallJournal
from holdfast.core.classes import Setting, learns_by_task
from holdfast.core.detectors import DetectorName
from holdfast.core.inputs import Array, checked_inputs, checked_tasks
from holdfast.core.journaled import journaled
from holdfast.core.model import HeadKind
from holdfast.core.optimizers import OptimizerName
from holdfast.keeping import Keeping
from holdfast.learning import Labelled
from holdfast.merging import Merging
from holdfast.practice import WAITING, Practice, PracticeOptions
from holdfast.settings import LearnerSettings, resolved_settings
from holdfast.watching import Watching

Named = str | dict[str, Any]  # a part by its name, or {"name": …, option: …}
# Arguments that only some methods take, as they are where the caller leaves all to the first batch.
UNCHOSEN: dict[str, Any] = {
    "method": None,
    "backbone": None,
    "head": None,
    "selection": None,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.0,
}


class Learner(Keeping, Merging, Watching):
    """Learn a stream batch by batch, in bounded memory.

    Args:
        method: a name of `holdfast list methods`, or {"name": …, option: …}. If neither it nor a backbone is named,
            nor an option, an optimiser or a rate, the first batch decides: `hedge` for vectors of up to 64 numbers,
            `slda` for longer ones, both on `identity`, else `er` on `mlp`. Colour pictures then get a rate of 0.03.
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
        chosen: dict[str, Any] = {"method": method, "backbone": backbone, "head": head, "selection": selection}
        chosen |= {"optimizer": optimizer, "lr": lr, "momentum": momentum, **options}
        self.is_open = chosen == UNCHOSEN  # the first batch decides about the method and the backbone
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

    @journaled
    def end_task(self) -> None:
        """Say that the task is over; observing another task says it too."""
        if not learns_by_task(self.settings.setting):
            raise ValueError("in the setting 'free' tasks are not known, so none ends: leave end_task out")
        self.change(self._end_task)

    @journaled
    def announce(self, classes: Sequence[Any], task: int | None = None) -> None:
        """Say which classes a task has before its samples come, where that is known."""
        y, n_classes, numbered = self._classes_of(list(classes), len(classes))
        tasks = checked_tasks(task, len(classes), self.settings.setting, learning=True)
        self.change(lambda: self._announce(y.tolist(), n_classes, int(tasks[0]), numbered))
