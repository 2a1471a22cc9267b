"""Equal terms for methods of different cost: so many operations a batch for each, or a stream that does not wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.build import build_stream
from holdfast.core.batch import Batch
from holdfast.core.classes import learns_by_task
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.flops import counting
from holdfast.learner import Learner
from holdfast.methods._base import MAX_STEPS, ReplayMethod
from holdfast.parts import AROUND, find
from holdfast.settings import LearnerSettings, options_of
from holdfast.streams._base import Stream

REPLAY, STEPS = "replay_size", "steps_per_batch"  # the options that a budget decides about
COUNTED = 3  # batches, of which the mean counts
MOST_WARM = 200  # batches before them, at most
NEAR = 1.02  # as much more than the budget counts as within it


@dataclass(frozen=True)
class Fitted:
    """An experiment on equal terms, and a sentence that says what was changed for it."""

    experiment: Experiment
    said: str


def flops_per_batch(experiment: Experiment, data: Path | None = None) -> float:
    """Return the floating-point operations of a batch, once memory has as many samples as are replayed.

    A learner of its own learns the first batches of the first task, then a few of the second, which count. See
    `experiments.flops` for what is counted.
    """
    return _counted(experiment.model_dump_json(exclude={"benchmark", "row"}), data)


@cache
def _counted(text: str, data: Path | None) -> float:
    experiment = Experiment.model_validate_json(text)
    stream = build_stream(experiment.stream, data, experiment.seed)
    settings = LearnerSettings.model_validate(experiment.learner_settings(stream.n_classes))
    learner = Learner.from_settings(settings, input_shape=stream.input_shape, scale=stream.scale, mean=stream.mean)
    replayed = learner.method.replay_size if isinstance(learner.method, ReplayMethod) else 0
    n_warm = min(-(-replayed // experiment.batch_size) + 1, MOST_WARM)
    flops = []
    for is_counted, batch in _few_batches(stream, experiment, learner, n_warm):
        task = batch.task if learns_by_task(experiment.setting) else None
        with counting() as count:
            learner.observe(batch.x, batch.y, task)
        if is_counted:
            flops.append(count.flops)
    return sum(flops) / len(flops)


def _few_batches(stream: Stream, experiment: Experiment, learner: Learner, n_warm: int) -> Iterator[tuple[bool, Batch]]:
    """Yield batches of the first task and then of the second, and whether each counts."""
    knows_task = learns_by_task(experiment.setting)
    last = min(1, len(stream) - 1)
    for number in range(last + 1):
        task = stream[number]
        if knows_task:
            for announced in stream.announced(number):
                learner.announce(announced.classes, announced.id)
        n_steps = min(task.n_steps(experiment.batch_size), n_warm * (number == 0) + COUNTED * (number == last))
        for step in range(n_steps):
            is_counted = number == last and step >= n_steps - COUNTED
            yield is_counted, task.batch(step, size=experiment.batch_size, seed=experiment.seed)
        if knows_task:
            learner.end_task()


def within_budget(experiment: Experiment, flops: float, data: Path | None = None) -> Fitted:
    """Return the experiment with about `flops` a batch, by more or fewer replayed samples, or by steps.

    | what fits | what is changed |
    |---|---|
    | replay | as many samples are replayed as fit, at least as many as are new, unless fewer were asked for |
    | more than what is stored, or no replay | a batch is learned in several steps |
    | less than that | only some batches are learned (`real_time`) |

    A method that takes no steps stays below the budget.
    """
    before = flops_per_batch(experiment, data)
    options = options_of("methods", experiment.method.name)
    changed = experiment
    if options.get(REPLAY) and experiment.method.options.get(REPLAY, 1):
        changed = _with_replay(experiment, flops, data)
    if STEPS in options and find("methods", experiment.method.name).one_loss:
        changed = _with_steps(changed, flops, data)
    cost = flops_per_batch(changed, data)
    if cost > NEAR * flops:
        changed = _slower(changed, cost / flops)
    return Fitted(changed, _sentence(experiment, changed, before, min(cost, flops) if cost > NEAR * flops else cost))


def in_real_time(experiment: Experiment, flops: float, data: Path | None = None) -> Fitted:
    """Return the experiment on a stream that does not wait, where a batch of `flops` is learned in time.

    A method of c times as many operations learns every c-th batch, and predicts all.
    """
    cost = flops_per_batch(experiment, data)
    changed = experiment if cost <= NEAR * flops else _slower(experiment, cost / flops)
    return Fitted(changed, _sentence(experiment, changed, cost, cost))


def with_delay(experiment: Experiment, batches: int) -> Experiment:
    """Return the experiment with labels that come so many batches after their inputs."""
    return _with_method(experiment, f"{experiment.method.name}{AROUND}delayed", delay=batches)


def _with_replay(experiment: Experiment, flops: float, data: Path | None) -> Experiment:
    """Return the experiment with the most replayed samples that fit."""
    most = experiment.memory if isinstance(experiment.memory, int) else 2**14
    now = int(experiment.method.options.get(REPLAY, options_of("methods", experiment.method.name)[REPLAY]))

    def cost(size: int) -> float:
        return flops_per_batch(_with_method(experiment, experiment.method.name, **{REPLAY: size}), data)

    low = min(now, experiment.batch_size, most)
    high = max(low + 1, min(2 * now, most))
    per_sample = (cost(high) - cost(low)) / (high - low)
    if per_sample <= 0:
        return experiment
    size = max(low, min(most, int((flops - cost(low)) / per_sample) + low))
    while size > low and cost(size) > NEAR * flops:
        size -= max(1, int((cost(size) - flops) / per_sample))
    return _with_method(experiment, experiment.method.name, **{REPLAY: max(size, low)})


def _with_steps(experiment: Experiment, flops: float, data: Path | None) -> Experiment:
    """Return the experiment with as many more steps a batch as fit."""
    cost = flops_per_batch(experiment, data)
    now = int(experiment.method.options.get(STEPS, 1))
    steps = min(int(NEAR * flops / cost) * now, MAX_STEPS) if cost else now
    return experiment if steps <= now else _with_method(experiment, experiment.method.name, **{STEPS: steps})


def _slower(experiment: Experiment, cost: float) -> Experiment:
    return _with_method(experiment, f"{experiment.method.name}{AROUND}real_time", cost=round(cost, 3))


def _with_method(experiment: Experiment, name: str, **options: float) -> Experiment:
    part = experiment.method.model_copy(update={"name": name}).with_options(**options)
    return Experiment.model_validate({**experiment.model_dump(mode="json"), "method": part.model_dump()})


def _sentence(old: Experiment, new: Experiment, before: float, after: float) -> str:
    """Say what a batch costs, and what was changed for it."""
    defaults, now = options_of("methods", old.method.name), new.method.options
    said = [
        f"{name}={now[name]} instead of {old.method.options.get(name, defaults.get(name))}"
        for name in (REPLAY, STEPS)
        if now.get(name) != old.method.options.get(name)
    ]
    if "cost" in new.method.options:
        said.append(f"learns one batch in {new.method.options['cost']:g}")
    cost = f"{before / 1e9:.3g} GFLOP a batch" if before == after else f"{before / 1e9:.3g} to {after / 1e9:.3g} GFLOP"
    return f"{old.row}: {cost}, {', '.join(said) or 'unchanged'}"
