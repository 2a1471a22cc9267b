"""Facts about a run that decide its numbers, in words. Papers often leave them out."""

from __future__ import annotations

import math

from holdfast.core.classes import SETTING_MEANINGS
from holdfast.core.model import Model
from holdfast.experiments.differences import plain, set_options
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.versions import versions
from holdfast.learner import Learner
from holdfast.memory.storage import parse_bytes
from holdfast.methods._base import ReplayMethod
from holdfast.settings import PARTS, Part, options_of
from holdfast.streams._base import Stream


def facts(experiment: Experiment, stream: Stream, learner: Learner) -> dict[str, str]:
    """Return the facts of a run before it starts, one a line."""
    method, model = learner.method, learner.method.model
    n_parameters = sum(p.numel() for p in model.parameters())
    head = "cosine head, no bias" if model.head.kind == "cosine" else "linear head"
    backbone = _with_options(experiment, "backbone")
    momentum = f", momentum {experiment.momentum:g}" if experiment.momentum else ""
    lines = {
        "method": _with_options(experiment, "method"),
        "stream": f"{_with_options(experiment, 'stream')}: {_samples(stream, model)}",
        "tasks": _tasks(experiment, stream),
        "setting": f"{experiment.setting}: {SETTING_MEANINGS[experiment.setting]}",
        "model": f"{backbone}, {head} of {model.head.n_classes}, {n_parameters:,} parameters",
        "pre-training": getattr(model.backbone, "pretraining", "not known"),
        "batch": f"{experiment.batch_size} new samples, {_steps(method.steps_a_batch)} a batch, one pass",
        "optimiser": f"{experiment.optimizer}, learning rate {experiment.lr:g}{momentum}",
        "replay": "none",
        "memory": "none",
        "seed": str(experiment.seed),
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
    }
    if isinstance(method, ReplayMethod):
        retrieval = _with_options(experiment, "retrieval")
        lines["replay"] = f"{method.replay_size} stored samples a step, retrieval {retrieval}"
        lines["memory"] = _memory(experiment, stream)
    if method.average is not None:
        lines["prediction"] = f"by an average of the weights over batches, decay {method.average:g}"
    if (caution := method.caution()) is not None:
        lines["caution"] = caution
    return lines


def _memory(experiment: Experiment, stream: Stream) -> str:
    sample = stream[0].train[:1]
    bytes_per_sample = sample.x.nbytes + sample.y.nbytes + sample.task.nbytes
    selection = _with_options(experiment, "selection")
    if isinstance(experiment.memory, int):
        n_samples, n_bytes = experiment.memory, experiment.memory * bytes_per_sample
    else:
        n_bytes = parse_bytes(experiment.memory)
        n_samples = n_bytes // bytes_per_sample
    return (
        f"{n_samples:,} samples = {n_bytes:,} bytes ({bytes_per_sample:,} a sample, before what the method "
        f"stores beside it), selection {selection}"
    )


def _tasks(experiment: Experiment, stream: Stream) -> str:
    subset = experiment.stream.options.get("tasks", "report")
    n_tests = len(stream.tests(len(stream)))
    count = f"{n_tests} mixed into one" if n_tests != len(stream) else f"{len(stream)}"
    held_out = f"{stream.n_held_out} others held out for tuning" if stream.n_held_out else "none held out for tuning"
    return {"report": f"{count}, {held_out}", "tuning": f"{count}, those held out for tuning"}.get(
        subset, f"{count}, those for tuning among them"
    )


def _samples(stream: Stream, model: Model) -> str:
    n_train, n_test = sum(len(task.train) for task in stream), sum(len(task.test) for task in stream)
    scale = "x" if model.scale is None or math.isclose(model.scale, 1) else f"x/{1 / model.scale:g}"
    mean = " less the mean" if model.has_mean else ""
    return f"{n_train:,} samples to learn, {n_test:,} to test; input {scale}{mean}"


def _steps(n: int) -> str:
    return "1 step" if n == 1 else f"{n} steps"


def _with_options(experiment: Experiment, field: str) -> str:
    """Return the part in a field, with the options that differ from their defaults."""
    kind, part = PARTS[field], Part.model_validate(getattr(experiment, field))
    options = set_options(kind, part)
    if ":" in part.name:  # whose class is imported by now
        defaults = options_of(kind, part.name)
        options = {name: value for name, value in options.items() if plain(defaults.get(name)) != plain(value)}
    if not options:
        return part.name
    return f"{part.name} ({', '.join(f'{option}={value}' for option, value in options.items())})"
