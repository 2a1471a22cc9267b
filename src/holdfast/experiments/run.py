"""Run one experiment: learn the stream once, test after each task, and be killable at any step."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
from holdfast.core.classes import learns_by_task
from holdfast.core.fingerprint import Fingerprint, changed_modules
from holdfast.core.state import Count, State, Stateful, restore_generator
from holdfast.experiments.code import Continued, code_of, continued, listed
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.facts import facts
from holdfast.experiments.probes._base import Moment, Plan
from holdfast.experiments.probes.accuracy import Accuracy
from holdfast.experiments.probes.cost import Cost
from holdfast.experiments.probes.drift import Drift
from holdfast.experiments.probes.footprint import FootprintProbe
from holdfast.experiments.probes.timing import Timing
from holdfast.experiments.probing import Probes, lacking, wanted_probes
from holdfast.experiments.results import Refused, Result, ResultStore
from holdfast.experiments.versions import versions
from holdfast.learner import Learner
from holdfast.settings import LearnerSettings, Part
from holdfast.streams._base import Stream


class Interrupted(Exception):
    """The run was asked to stop; it has saved where it is."""


class Watcher(Protocol):
    """Callback that shows where a run is."""

    def begin(self, facts: dict[str, str], moment: Moment) -> None: ...

    def step(self, moment: Moment) -> None: ...


class How(TypedDict, total=False):
    """Arguments of `run` beside the experiment, alike for many runs."""

    data: Path | None
    device: str
    checkpoint_seconds: float
    record: bool
    probes: tuple[Part, ...]
    continue_anyway: bool


class Run(Stateful):
    """An experiment under way: all that a checkpoint has to hold."""

    derived: ClassVar[frozenset[str]] = frozenset({"probes", "timing", "accuracy"})  # probes are restored last

    digest: str
    task: Count
    step: Count
    n_steps: Count
    total_steps: Count

    def __init__(self, experiment: Experiment, stream: Stream, device: str, probes: Sequence[Part] = ()) -> None:
        self.learner = Learner.from_settings(  # nothing around the method: results are those of the settings alone
            LearnerSettings.model_validate(experiment.learner_settings(stream.n_classes)),
            input_shape=stream.input_shape,
            scale=stream.scale,
            mean=stream.mean,
            device=device,
        )
        self.digest = experiment.digest
        self.code: Fingerprint = {}  # that learns now
        self.continued_across: list[dict[str, Any]] = []  # of Continued
        self.task = 0  # being learned
        self.step = 0  # of it, to be learned next
        self.n_steps = 0  # done over all tasks, of
        self.total_steps = sum(task.n_steps(experiment.batch_size) for task in stream)
        self.timing, self.accuracy = Timing(), Accuracy()
        always = {
            "timing": self.timing,
            "accuracy": self.accuracy,
            "drift": Drift(),
            "footprint": FootprintProbe(),
            "cost": Cost(),
        }
        self.probes = Probes(always, probes)

    def save(self, path: Path) -> None:
        more = {"probes": self.probes.state_dict(), "global_rng": torch.get_rng_state()}
        write_checkpoint(path, self.state_dict() | more)

    def restore(self, state: State) -> None:
        restore_generator(torch.default_generator, state.pop("global_rng"))
        probes = state.pop("probes", None)
        self.load_state_dict(state)
        for text in self.probes.take_up(probes, n_steps=self.n_steps, n_tasks=self.task):
            warnings.warn(text, stacklevel=4)

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Context manager: probes look at the learner inside, which counts as testing and draws no random number."""
        drawn = torch.get_rng_state()
        with self.timing.testing():
            yield
        torch.set_rng_state(drawn)


def run(
    experiment: Experiment,
    store: ResultStore,
    *,
    data: Path | None = None,
    device: str = "cpu",
    checkpoint_seconds: float = 60,
    fresh: bool = False,
    record: bool = False,
    probes: Sequence[Part] = (),
    continue_anyway: bool = False,
    watcher: Watcher | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Return the result of `experiment`: read from the store if it is finished, continued if it was begun.

    Args:
        data: where data sets are; see `holdfast data`.
        checkpoint_seconds: at most this much work is lost to a kill; a continued run ends with the same bits.
        fresh: throw away what is there of this experiment.
        record: leave features and memory beside the result, to be looked at: the probe `record`.
        probes: what to measure beside what every run measures; see `experiments.probing`.
        continue_anyway: go on from a checkpoint of other code, which the result then states; else that is refused.
        watcher: told when the run begins and after each step.
        stop: asked after each step; if it says so, the run saves where it is and raises Interrupted.

    Example:
        >>> import tempfile
        >>> stream = {"name": "holdfast.checks.toy:Toy", "n_train": 20}
        >>> experiment = Experiment(stream=stream, setting="class", backbone="identity", method="ncm")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = run(experiment, ResultStore(Path(folder)))
        >>> [len(row) for row in result.accuracies]
        [3, 3, 3]
    """
    wanted = wanted_probes(probes, record=record)
    # Code of other packages may have changed since, and an experiment of a file may not state all.
    experiment = Experiment.model_validate(experiment.model_dump(mode="json"))
    if fresh:
        store.discard(experiment)
    elif finished := store.find(experiment):
        if missing := lacking(finished, store.folder(experiment), wanted):
            without = " ".join(missing)
            folder = store.folder(experiment)
            warnings.warn(f"{folder} was finished without {without}: --fresh runs it again", stacklevel=2)
        return finished
    with store.claimed(experiment) as folder, torch.random.fork_rng(devices=[]):
        if finished := store.find(experiment):  # by another process, between the look above and the claim
            return finished
        state, stream = _begun(experiment, data, device, wanted)
        state.code = code_of(experiment)
        checkpoint = folder / CHECKPOINT
        _take_up(state, experiment, store, anyway=continue_anyway)
        with ExitStack() as at_end:
            for probe in state.probes:
                at_end.callback(probe.close)
            state.probes.begin(Plan(experiment, stream, folder, state.n_steps))
            if watcher:
                watcher.begin(facts(experiment, stream, state.learner), _moment(state, len(stream), 0.0))
            _learn(state, experiment, stream, checkpoint, checkpoint_seconds, watcher, stop)
            state.save(checkpoint)
            previous_checkpoint(checkpoint).unlink(missing_ok=True)
            result = _result(state, experiment)
            store.save(result)
        return result


def _begun(experiment: Experiment, data: Path | None, device: str, probes: Sequence[Part]) -> tuple[Run, Stream]:
    torch.manual_seed(experiment.seed)
    stream = build_stream(experiment.stream, data, experiment.seed)
    return Run(experiment, stream, device, probes), stream


def _take_up(state: Run, experiment: Experiment, store: ResultStore, *, anyway: bool) -> None:
    """Go on from the checkpoint of an experiment, if there is one, or from one by earlier code of another package."""
    checkpoint = store.folder(experiment) / CHECKPOINT
    if not checkpoint.exists() and not previous_checkpoint(checkpoint).exists():
        for folder, earlier in store.begun_by_other_code(experiment):
            _continue(state, folder / CHECKPOINT, experiment, earlier, anyway=anyway)
            state.save(checkpoint)
            shutil.rmtree(folder)
            return
    _continue(state, checkpoint, experiment, experiment, anyway=anyway)


def _continue(state: Run, checkpoint: Path, experiment: Experiment, of: Experiment, *, anyway: bool) -> None:
    """Go on from a checkpoint of the experiment `of`: the same, or the same with other code of another package."""
    try:
        saved = read_checkpoint(checkpoint)
    except FileNotFoundError:
        return
    except CorruptCheckpoint as error:
        warnings.warn(f"{error}; no other is there, so the run begins anew", stacklevel=3)
        return
    if saved.get("digest") != of.digest:
        raise CorruptCheckpoint(f"{checkpoint} is of another experiment: use another --out or --fresh")
    old, across = _code_behind(saved, checkpoint)
    foreign = changed_modules(of.foreign_code, experiment.foreign_code)
    foreign += state.probes.changed_code(saved.get("probes", {}))
    if old != state.code or foreign:
        change = continued(saved.get("n_steps", 0), old, state.code, foreign)
        if not anyway:
            raise Refused(
                f"{checkpoint} was made by other code ({_changes(change)}): --fresh begins anew, "
                "--continue-anyway goes on from there and says so in the result"
            )
        across = [*across, change]
    told = [change.model_dump() for change in across]
    try:
        state.restore(saved | {"digest": state.digest, "code": state.code, "continued_across": told})
    except ValueError:
        raise
    except Exception as error:  # whatever a file made to do harm leads to
        raise CorruptCheckpoint(f"{checkpoint} is not the state of a run: {error or type(error).__name__}") from error


def _code_behind(saved: State, checkpoint: Path) -> tuple[Fingerprint | None, list[Continued]]:
    """Return the code that made a checkpoint, None if the checkpoint does not say, and the changes before."""
    try:
        old = TypeAdapter(Fingerprint | None).validate_python(saved.get("code"))
        return old, TypeAdapter(list[Continued]).validate_python(saved.get("continued_across", []))
    except ValidationError as error:
        raise CorruptCheckpoint(f"{checkpoint} does not say which code made it: {error}") from error


def _changes(change: Continued) -> str:
    if change.old is None and not change.changed:
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
    timing = state.timing
    saved_at = time.perf_counter()

    def save_if_due() -> None:
        nonlocal saved_at
        if stop():
            state.save(checkpoint)
            raise Interrupted(f"stopped after step {state.n_steps:,}")
        if time.perf_counter() - saved_at < checkpoint_seconds:
            return
        try:
            state.save(checkpoint)
        except OSError as error:  # a full disk need not end the run: there may be room next time
            warnings.warn(str(error), stacklevel=3)
        saved_at = time.perf_counter()

    while state.task < len(stream):
        task = stream[state.task]
        if state.step == 0 and knows_task:
            for announced in stream.announced(state.task):
                learner.announce(announced.classes, announced.id)
        while state.step < task.n_steps(size):
            with timing.learning():
                batch = task.batch(state.step, size=size, seed=experiment.seed)
            with state.probing():
                state.probes.before_step(learner, batch)
            with timing.learning(), state.probes.during_step(state.n_steps):
                loss = learner.observe(batch.x, batch.y, batch.task if knows_task else None)
            state.step += 1
            state.n_steps += 1
            moment = _moment(state, len(stream), loss)
            with state.probing():
                state.probes.after_step(learner, moment)
            if watcher:
                watcher.step(moment)
            save_if_due()
        if knows_task:
            with timing.learning():
                learner.end_task()
        tests = stream.tests(state.task + 1)
        with state.probing():
            state.probes.after_task(learner, tests)
        state.task, state.step = state.task + 1, 0
        save_if_due()


def _moment(state: Run, n_tasks: int, loss: float) -> Moment:
    return Moment(
        task=state.task,
        n_tasks=n_tasks,
        step=state.n_steps,
        n_steps=state.total_steps,
        loss=loss,
        accuracy=state.accuracy.average,
    )


def _result(state: Run, experiment: Experiment) -> Result:
    memory = state.learner.memory
    for probe in sorted(state.probes, key=lambda each: isinstance(each, FootprintProbe)):  # which learns one batch more
        probe.finish(state.learner)
    return Result(
        experiment=experiment,
        **state.probes.results(),
        n_steps=state.n_steps,
        memory_samples=0 if memory is None else len(memory),
        memory_bytes=0 if memory is None else memory.nbytes,
        n_parameters=sum(p.numel() for p in state.learner.method.model.parameters()),
        versions=versions(),
        code=state.code,
        continued_across=[Continued.model_validate(change) for change in state.continued_across],
    )
