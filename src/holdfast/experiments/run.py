"""Run one experiment: learn the stream once, test after each task, and be killable at any step."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypedDict

import torch
from pydantic import TypeAdapter, ValidationError

from holdfast.build import build_stream
from holdfast.core.checkpoint import (
    CHECKPOINT,
    CorruptCheckpoint,
    previous_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from holdfast.core.classes import learns_by_task, predicts_by_task
from holdfast.core.fingerprint import Fingerprint
from holdfast.core.model import PREDICT_SIZE
from holdfast.core.state import Count, State, Stateful, restore_generator
from holdfast.experiments.code import Continued, code_of, continued, listed
from holdfast.experiments.drift import DriftRecord
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.facts import facts
from holdfast.experiments.footprint import Footprint, footprint
from holdfast.experiments.record import RECORD, Recorder
from holdfast.experiments.results import Refused, Result, ResultStore
from holdfast.experiments.versions import versions
from holdfast.learner import Learner
from holdfast.methods._base import Diverged
from holdfast.streams._base import Stream, Task


class Interrupted(Exception):
    """The run was asked to stop; it has saved where it is."""


@dataclass(frozen=True)
class Moment:
    """Where a run is, for those who watch it."""

    task: int
    n_tasks: int
    step: int  # over all tasks
    n_steps: int
    loss: float
    accuracy: float | None  # A_t after the last task that was tested


class Watcher(Protocol):
    """Someone who follows a run."""

    def begin(self, facts: dict[str, str], moment: Moment) -> None: ...

    def step(self, moment: Moment) -> None: ...


class How(TypedDict, total=False):
    """What `run` is told beside the experiment, alike for many runs."""

    data: Path | None
    device: str
    checkpoint_seconds: float
    record: bool
    continue_anyway: bool


class Run(Stateful):
    """An experiment under way: all that a checkpoint has to hold."""

    derived: ClassVar[frozenset[str]] = frozenset({"recorder"})  # saved where there is one

    digest: str
    task: Count
    step: Count
    n_steps: Count
    total_steps: Count
    accuracies: list[list[float]]
    seconds: float
    seconds_testing: float

    def __init__(self, experiment: Experiment, stream: Stream, device: str, *, record: bool = False) -> None:
        self.learner = Learner(
            input_shape=stream.input_shape,
            scale=stream.scale,
            mean=stream.mean,
            device=device,
            **experiment.learner_settings(stream.n_classes),
        )
        self.digest = experiment.digest
        self.code: Fingerprint = {}  # that learns now
        self.continued_across: list[dict[str, Any]] = []  # of Continued
        self.task = 0  # being learned
        self.step = 0  # of it, to be learned next
        self.n_steps = 0  # done over all tasks, of
        self.total_steps = sum(task.n_steps(experiment.batch_size) for task in stream)
        self.accuracies = []
        self.drift = DriftRecord()
        self.recorder = Recorder() if record else None
        self.seconds = 0.0
        self.seconds_testing = 0.0

    def save(self, path: Path) -> None:
        recorder = {} if self.recorder is None else {"recorder": self.recorder.state_dict()}
        write_checkpoint(path, self.state_dict() | {"global_rng": torch.get_rng_state()} | recorder)

    def restore(self, state: State) -> None:
        restore_generator(torch.default_generator, state.pop("global_rng"))
        recorded = state.pop("recorder", None)
        self.load_state_dict(state)
        if recorded is not None:  # a run that began to record goes on with it
            self.recorder = Recorder()
            self.recorder.load_state_dict(recorded)
        elif self.recorder and self.accuracies:
            warnings.warn("the run was begun without --record and leaves none: --fresh begins anew", stacklevel=4)
            self.recorder = None


def run(
    experiment: Experiment,
    store: ResultStore,
    *,
    data: Path | None = None,
    device: str = "cpu",
    checkpoint_seconds: float = 60,
    fresh: bool = False,
    record: bool = False,
    continue_anyway: bool = False,
    watcher: Watcher | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """The result of `experiment`: read from the store if it is finished, continued if it was begun.

    Args:
        data: where data sets are; see `holdfast data`.
        checkpoint_seconds: at most this much work is lost to a kill; a continued run ends with the same bits.
        fresh: throw away what is there of this experiment.
        record: leave features and memory beside the result, to be looked at; see `experiments.record`.
        continue_anyway: go on from a checkpoint of other code, which the result then states; else that is refused.
        watcher: told when the run begins and after each step.
        stop: asked after each step; if it says so, the run saves where it is and raises Interrupted.
    """
    if fresh:
        shutil.rmtree(store.folder(experiment), ignore_errors=True)
    elif finished := store.load(experiment):
        if record and not (missing := store.folder(experiment) / RECORD).exists():
            warnings.warn(f"{missing.parent} was finished without --record: --fresh runs it again", stacklevel=2)
        return finished
    with store.claimed(experiment) as folder, torch.random.fork_rng(devices=[]):
        if finished := store.load(experiment):  # by another process, between the look above and the claim
            return finished
        state, stream = _begun(experiment, data, device, record=record)
        state.code = code_of(experiment)
        checkpoint = folder / CHECKPOINT
        _continue(state, checkpoint, anyway=continue_anyway)
        if watcher:
            watcher.begin(facts(experiment, stream, state.learner), _moment(state, len(stream), 0.0))
        _learn(state, experiment, stream, checkpoint, checkpoint_seconds, watcher, stop)
        state.save(checkpoint)
        previous_checkpoint(checkpoint).unlink(missing_ok=True)
        if state.recorder:
            state.recorder.write(folder / RECORD, state.learner, experiment, stream)
        result = _result(state, experiment, stream)
        store.save(result)
        return result


def _begun(experiment: Experiment, data: Path | None, device: str, *, record: bool) -> tuple[Run, Stream]:
    torch.manual_seed(experiment.seed)
    stream = build_stream(experiment.stream, data, experiment.seed)
    return Run(experiment, stream, device, record=record), stream


def _continue(state: Run, checkpoint: Path, *, anyway: bool) -> None:
    try:
        saved = read_checkpoint(checkpoint)
    except FileNotFoundError:
        return
    except CorruptCheckpoint as error:
        warnings.warn(f"{error}; no other is there, so the run begins anew", stacklevel=3)
        return
    if saved.get("digest") != state.digest:
        raise CorruptCheckpoint(f"{checkpoint} is of another experiment: use another --out or --fresh")
    old, across = _code_behind(saved, checkpoint)
    if old != state.code:
        change = continued(saved.get("n_steps", 0), old, state.code)
        if not anyway:
            raise Refused(
                f"{checkpoint} was made by other code ({_changes(change)}): --fresh begins anew, "
                "--continue-anyway goes on from there and says so in the result"
            )
        across = [*across, change]
    code, told = state.code, [change.model_dump() for change in across]
    try:
        state.restore(saved | {"code": code, "continued_across": told})
    except ValueError:
        raise
    except Exception as error:  # whatever a file made to do harm leads to
        raise CorruptCheckpoint(f"{checkpoint} is not the state of a run: {error or type(error).__name__}") from error


def _code_behind(saved: State, checkpoint: Path) -> tuple[Fingerprint | None, list[Continued]]:
    """The code that made a checkpoint, None if it was saved before that was kept, and the changes before."""
    try:
        old = TypeAdapter(Fingerprint | None).validate_python(saved.get("code"))
        return old, TypeAdapter(list[Continued]).validate_python(saved.get("continued_across", []))
    except ValidationError as error:
        raise CorruptCheckpoint(f"{checkpoint} does not say which code made it: {error}") from error


def _changes(change: Continued) -> str:
    if change.old is None:
        return "which is not recorded in it"
    return f"{listed(change.changed)} {'differs' if len(change.changed) == 1 else 'differ'}"


def _learn(
    state: Run,
    experiment: Experiment,
    stream: Stream,
    checkpoint: Path,
    checkpoint_seconds: float,
    watcher: Watcher | None,
    stop: Callable[[], bool],
) -> None:
    learner, size = state.learner, experiment.batch_size
    knows_task = learns_by_task(experiment.setting)
    saved_at = started = time.perf_counter()

    def save_if_due() -> None:
        nonlocal saved_at, started
        now = time.perf_counter()
        if stop():
            state.seconds += now - started
            state.save(checkpoint)
            raise Interrupted(f"stopped after step {state.n_steps:,}")
        if now - saved_at < checkpoint_seconds:
            return
        state.seconds += now - started
        try:
            state.save(checkpoint)
        except OSError as error:  # a full disk need not end the run: there may be room next time
            warnings.warn(str(error), stacklevel=3)
        saved_at = started = time.perf_counter()

    while state.task < len(stream):
        task = stream[state.task]
        if state.step == 0 and knows_task:
            for announced in stream.announced(state.task):
                learner.announce(announced.classes, announced.id)
        while state.step < task.n_steps(size):
            batch = task.batch(state.step, size=size, seed=experiment.seed)
            loss = learner.observe(batch.x, batch.y, batch.task if knows_task else None)
            state.step += 1
            state.n_steps += 1
            if watcher:
                watcher.step(_moment(state, len(stream), loss))
            save_if_due()
        if knows_task:
            learner.end_task()
        state.seconds += time.perf_counter() - started
        started = time.perf_counter()
        tests = stream.tests(state.task + 1)
        row = [measured_accuracy(learner, t, stream) for t in tests]
        if len(tests) == state.task + 1:  # learned in turn, not all at once
            state.drift.add(learner, tests)
            if state.recorder:
                state.recorder.add(learner, tests[0].test)
        state.seconds_testing += time.perf_counter() - started
        state.accuracies.append(row)
        state.task, state.step = state.task + 1, 0
        started = time.perf_counter()
        save_if_due()


def _moment(state: Run, n_tasks: int, loss: float) -> Moment:
    last = state.accuracies[-1] if state.accuracies else None
    return Moment(
        task=state.task,
        n_tasks=n_tasks,
        step=state.n_steps,
        n_steps=state.total_steps,
        loss=loss,
        accuracy=sum(last) / len(last) if last else None,
    )


def measured_accuracy(learner: Learner, task: Task, stream: Stream) -> float:
    """Accuracy on the test samples of `task`: over samples, or the mean over classes where the stream says so."""
    by_task = predicts_by_task(learner.settings.setting)
    right = torch.empty(len(task.test), dtype=torch.bool)
    for i in range(0, len(task.test), PREDICT_SIZE):
        batch = task.test[i : i + PREDICT_SIZE]
        predicted = learner.predict(batch.x, batch.task if by_task else None).cpu()
        right[i : i + PREDICT_SIZE] = predicted == batch.y
    if not stream.per_class_accuracy:
        return right.double().mean().item()
    return sum(right[task.test.y == c].double().mean().item() for c in task.classes) / len(task.classes)


def _result(state: Run, experiment: Experiment, stream: Stream) -> Result:
    n_tests = max(len(row) for row in state.accuracies)
    memory = state.learner.memory
    result = Result(
        experiment=experiment,
        accuracies=[[*row, *[None] * (n_tests - len(row))] for row in state.accuracies],
        moved=state.drift.moved,
        apart=state.drift.apart,
        n_steps=state.n_steps,
        seconds=round(state.seconds, 3),
        seconds_testing=round(state.seconds_testing, 3),
        memory_samples=0 if memory is None else len(memory),
        memory_bytes=0 if memory is None else memory.nbytes,
        n_parameters=sum(p.numel() for p in state.learner.method.model.parameters()),
        versions=versions(),
        code=state.code,
        continued_across=[Continued.model_validate(change) for change in state.continued_across],
    )
    return result.model_copy(update={"footprint": _footprint(state, experiment, stream)})


def _footprint(state: Run, experiment: Experiment, stream: Stream) -> Footprint | None:
    """What the learner keeps; it takes one step too many, so nothing may be asked of it afterwards."""
    batch = stream[len(stream) - 1].batch(0, size=experiment.batch_size, seed=experiment.seed)
    try:
        return footprint(state.learner, batch.x, batch.y, batch.task if learns_by_task(experiment.setting) else None)
    except Diverged:  # in this step, which is none of the run's
        return None
