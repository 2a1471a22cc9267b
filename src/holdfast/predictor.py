"""Predictions from inputs, for a learner that goes on learning and for an immutable snapshot of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.core.inputs import Array, checked_inputs, checked_tasks
from holdfast.core.labels import Label
from holdfast.export.files import export_method
from holdfast.methods._base import Diverged, Method
from holdfast.practice import Answers, Decision
from holdfast.settings import LearnerSettings

LEAST_EXAMPLES, MOST_EXAMPLES = 8, 64  # inputs that an exported file is compared on


class Predictor:
    """Base class of `Learner` and `Snapshot`: everything that is worked out from scores and features.

    Predictions change nothing. Any number of threads may call a predictor, also while one thread learns.
    """

    settings: LearnerSettings
    device: torch.device
    input_shape: tuple[int, ...] | None
    input_dtype: torch.dtype | None

    @property
    @abstractmethod
    def answers(self) -> Answers:
        """Return what turns scores into labels and probabilities."""

    @abstractmethod
    def _remembered(self) -> Tensor:
        """(m, …) Return samples that are remembered; ValueError for a method that remembers none."""

    @property
    @abstractmethod
    def method(self) -> Method:
        """Return the method that scores; RuntimeError before anything was learned."""

    def _turn(self) -> AbstractContextManager[object]:
        """Return a context manager: entered before `_lock`, it lets threads that wait go first."""
        return nullcontext()

    @property
    def _lock(self) -> AbstractContextManager[object]:
        """Return a context manager: inside, no other thread changes what predictions are made with."""
        return nullcontext()

    @property
    def classes_(self) -> list[Label]:
        """The label of each column of `scores` and `predict_proba`."""
        n_classes = self.method.model.head.n_classes
        labels = self.answers.labels
        return labels.known[:n_classes] if labels.named else list(range(n_classes))

    def predict(self, x: Array, task: int | Array | None = None, *, top: int | None = None) -> Any:
        """(n,) Return the label of each sample: a tensor of whole numbers, or a list where labels are others.

        Args:
            x: (n, …) inputs: tensor, array or list; bytes or floats.
            task: of all samples, or (n,); in the setting `task`, and there only.
            top: give so many labels a sample (n, top), the likeliest first; fewer where fewer compete.

        Example:
            >>> from holdfast import Learner
            >>> learner = Learner("ncm", backbone="identity")
            >>> loss = learner.observe([[0.0, 1.0], [1.0, 0.0]], ["up", "right"])
            >>> learner.predict([[0.1, 0.9]]), learner.predict([[0.1, 0.9]], top=2)
            (['up'], [['up', 'right']])
        """
        scores = self.scores(x, task)
        if top is None:
            return self._labelled(scores.argmax(dim=1))
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise ValueError(f"top is {top!r}: give the number of labels a sample, 1 or more")
        return self._labelled(scores.topk(min(top, int(torch.isfinite(scores).sum(dim=1).min())), dim=1).indices)

    def predict_proba(self, x: Array, task: int | Array | None = None) -> Tensor:
        """(n, n_classes) Return a probability for each of `classes_`; 0 where a class does not compete.

        A temperature is learned from samples before they are learned, so that of the answers that are given 80 %, about
        80 % are right. See `Temperature`.
        """
        return self.answers.temperature.probabilities(self.scores(x, task))

    def decision(self, x: Array, task: int | Array | None = None) -> list[Decision]:
        """Return for each sample the likeliest label, its probability, and whether the sample is unknown.

        Build the learner with unknown=0.05 to call as many samples of known classes unknown. See `Novelty`.
        """
        novelty = self.answers.novelty
        if novelty is None:
            raise ValueError(
                "nothing can be called unknown: build the learner with unknown=0.05, a rate of false alarms"
            )
        with self._turn(), self._lock:
            p = self.predict_proba(x, task)
            unknown = novelty.is_unknown(self.features(x), self.method.embed(self._remembered())).tolist()
            best, classes = p.max(dim=1)
            labels = self.answers.labels.of_classes(classes.tolist())
            return [Decision(*each) for each in zip(labels, best.tolist(), unknown, strict=True)]

    def _labelled(self, classes: Tensor) -> Any:
        """Return classes (n, …) as labels."""
        labels = self.answers.labels
        if not labels.named:
            return classes
        if classes.ndim > 1:
            rows = [labels.of_classes(row) for row in classes.tolist()]
            return torch.tensor(rows) if labels.are_numbers else rows
        found = labels.of_classes(classes.tolist())
        return torch.tensor(found) if labels.are_numbers else found

    def scores(self, x: Array, task: int | Array | None = None) -> Tensor:
        """(n, n_classes) Return one number a class, minus infinity where a class does not compete."""
        with self._turn(), self._lock:
            method = self.method
            seen = method.model.seen
            if not seen.all_seen().any():
                raise RuntimeError("nothing was learned yet: call observe(x, y) first")
            inputs = checked_inputs(x, shape=self.input_shape, dtype=self.input_dtype)
            tasks = checked_tasks(task, len(inputs), self.settings.setting, learning=False)
            for number in sorted(set(tasks.tolist())) if task is not None else ():
                if not seen.knows_task(number):
                    raise ValueError(f"task {number} was never observed: predict for a task that was")
            size = method.model.part_size(inputs)
            with method.settled():
                parts = zip(torch.split(inputs, size), torch.split(tasks, size), strict=True)
                of_parts = [method.scores(x.to(self.device), task.to(self.device)) for x, task in parts]
        scores = of_parts[0] if len(of_parts) == 1 else torch.cat(of_parts)
        if scores.isnan().any():
            row = int(scores.isnan().any(dim=1).nonzero()[0])
            raise Diverged(f"the scores of sample {row} are NaN, so it has no class: go back to a saved learner")
        return scores

    def features(self, x: Array) -> Tensor:
        """(n, n_features) Return what the backbone makes of inputs, as when predicting."""
        with self._turn(), self._lock:
            return self.method.embed(checked_inputs(x, shape=self.input_shape, dtype=self.input_dtype))


class Snapshot(Predictor):
    """Predict as a learner did at one moment. Nothing changes it, so threads need no lock.

    `Learner.snapshot` makes it. It has a copy of the weights, averaged if the learner averages them, and of whatever
    else scores are worked out from; it has no memory of samples unless the method predicts by those.

    Attributes:
        n_observed: the batches that the learner had observed.

    Example:
        >>> from holdfast import Learner
        >>> learner = Learner("er", n_classes=2)
        >>> loss = learner.observe([[0.0, 1.0], [1.0, 0.0]], [0, 1])
        >>> snapshot = learner.snapshot()
        >>> before = snapshot.scores([[0.0, 1.0]])
        >>> loss = learner.observe([[0.0, 1.0], [1.0, 0.0]], [1, 1])
        >>> torch.equal(snapshot.scores([[0.0, 1.0]]), before), torch.equal(learner.scores([[0.0, 1.0]]), before)
        (True, False)
    """

    def __init__(
        self,
        method: Method,
        settings: LearnerSettings,
        *,
        input_shape: tuple[int, ...] | None,
        input_dtype: torch.dtype | None,
        device: torch.device,
        n_observed: int,
        answers: Answers,
        remembered: Tensor | None,
    ) -> None:
        self._answers, self._samples = answers, remembered
        self._method = method
        self.settings = settings
        self.input_shape, self.input_dtype = input_shape, input_dtype
        self.device = device
        self.n_observed = n_observed

    @property
    def method(self) -> Method:
        return self._method

    def export(
        self, path: str | Path, examples: Array | None = None, *, about: Mapping[str, Any] | None = None
    ) -> None:
        """Write a file that scores without holdfast: .onnx for ONNX Runtime and others, .pt2 for `torch.export.load`.

        It takes raw inputs `x` (n, …), in the setting `task` also `task` (n,), and gives `scores` (n, n_classes).
        Scale and mean, the weights that predict and class means are inside. Its metadata `holdfast` are JSON. The file
        is compared with this snapshot first: if scores differ by more than 1e-5, nothing is written, and it raises.

        Args:
            examples: (n, …) inputs that are compared; without them, random ones.
            about: plain values to add to the metadata.
        """
        if self.input_shape is None or self.input_dtype is None or not self.method.model.seen.all_seen().any():
            raise RuntimeError("nothing was learned yet: call observe(x, y) first")
        if examples is None:
            inputs = _random_inputs(self.input_shape, self.input_dtype)
        else:
            inputs = checked_inputs(examples, shape=self.input_shape, dtype=self.input_dtype)
        enough = [i % len(inputs) for i in range(max(LEAST_EXAMPLES, min(len(inputs), MOST_EXAMPLES)))]
        export_method(Path(path), self.method, inputs[enough].cpu(), self._metadata() | dict(about or {}))

    def _metadata(self) -> dict[str, Any]:
        """Return what a file says about the learner."""
        return {
            "settings": self.settings.model_dump(mode="json"),
            "input_shape": self.input_shape,
            "input_dtype": str(self.input_dtype).removeprefix("torch."),
            "n_observed": self.n_observed,
            "labels": self.classes_,
            "temperature": self.answers.temperature.value,
        }

    @property
    def answers(self) -> Answers:
        return self._answers

    def _remembered(self) -> Tensor:
        assert self._samples is not None  # where something can be unknown
        return self._samples


def _random_inputs(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return inputs (n, *shape): bytes of all values, or normal floats."""
    rng = torch.Generator().manual_seed(0)
    if dtype == torch.uint8:
        return torch.randint(256, (LEAST_EXAMPLES, *shape), dtype=dtype, generator=rng)
    return torch.randn(LEAST_EXAMPLES, *shape, generator=rng).to(dtype)
