"""One learner behind the server: a thread that learns, a journal before it, a snapshot that predicts.

Whatever changes the learner is a call. A call waits in a queue, is written into the journal, and is made. It is
answered after that. Calls that wait together share one sync of the disk. Predictions use the newest snapshot.
"""

from __future__ import annotations

import math
import secrets
import shutil
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from holdfast.core.calls import SEGMENT_BYTES, Call, CallJournal
from holdfast.core.checkpoint import previous_checkpoint, read_checkpoint, write_checkpoint
from holdfast.core.classes import predicts_by_task
from holdfast.core.inputs import checked_inputs
from holdfast.core.state import State
from holdfast.core.waiting import Waiting, checked_ids
from holdfast.learner import Learner
from holdfast.loading import load_learner
from holdfast.predictor import Snapshot
from holdfast.serve.record import Record
from holdfast.serve.turns import Turns

MODEL = "model.holdfast"
GROUP = 64  # calls that are synced together, at most
N_KEYS = 10_000  # idempotency keys that are remembered
JOURNAL_BYTES = 2**30
SAVED_SHARE = 0.25  # of the journal's bound: so many new bytes make a checkpoint, and two checkpoints' worth is kept
SNAPSHOT_SHARE = 0.1  # of the learning thread's time, while calls wait
CALLS = frozenset({"observe", "end_task", "keep", "label"})
MOST_INPUTS = 10_000  # that wait for their labels
INPUT_BYTES = 64 * 2**20  # of them


class Busy(RuntimeError):
    """The queue is full, or the model is being closed: try again later."""


class KeyTaken(ValueError):
    """An idempotency key that came before with another request."""


class NotDurable(OSError):
    """A call that could not be written to disk, and was not made."""


@dataclass(eq=False)
class _Waiting:
    """A call that waits for the learning thread; `number` is that of its record, once it has one."""

    name: str
    args: tuple[Any, ...] = ()
    note: dict[str, str] = field(default_factory=dict)
    answer: Future[Any] = field(default_factory=Future)
    number: int = 0


@dataclass(eq=False)
class _Question:
    """A question that the learning thread answers between two calls."""

    of: Callable[[Hosted], Any]
    answer: Future[Any] = field(default_factory=Future)


class Hosted:
    """A learner in a folder of its own, with everything that it needs to be as it was after a crash.

    Open one with `create_hosted` or `open_hosted`, and close it: it owns a thread and the lock of a journal.

    Args:
        folder: of the checkpoint and the journal.
        max_journal_bytes: of the journal; a quarter of it makes a checkpoint, and is kept until the next one.
        max_waiting: calls in the queue; more raise Busy.
        turns: of the thread that learns and the one that answers.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_journal_bytes: int = JOURNAL_BYTES,
        max_waiting: int = 1000,
        turns: Turns | None = None,
    ) -> None:
        self.folder = folder
        self.max_journal_bytes = max_journal_bytes
        self.max_waiting = max_waiting
        self.turns = turns or Turns()
        self.failure: str | None = None  # why nothing can be learned now
        self.save_failure: str | None = None
        self.seconds_to_predict = 1.0  # a sample, of the last prediction; many until the first
        self._queue: deque[_Waiting | _Question] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._pending: dict[str, tuple[str, Future[Any]]] = {}
        self._snapshot_seconds = 0.0
        self._snapshot_at = -math.inf
        self._load()
        self._thread = threading.Thread(target=self._work, name=f"learn {folder.name}", daemon=True)
        self._thread.start()

    # Calls from any thread.

    @property
    def snapshot(self) -> Snapshot | None:
        """Newest snapshot; None before anything was learned."""
        return self._snapshot

    @property
    def n_waiting(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

    def call(self, name: str, *args: Any, key: str | None = None, digest: str = "") -> tuple[Future[Any], bool]:
        """Put a call into the queue; gives its answer to come, and whether the same call came before.

        Args:
            key: of the client; a second call with it is not made, and gets the answer of the first.
            digest: of the request, to tell another request with the same key.
        """
        assert name in CALLS
        with self._changed:
            if key is not None and (known := self._known(key, digest)) is not None:
                return known, True
            if self._closing or len(self._queue) >= self.max_waiting:
                raise Busy("the model is being closed" if self._closing else "too many calls wait to be learned")
            note = {} if key is None else {"key": key, "digest": digest}
            waiting = _Waiting(name, args, note)
            if key is not None:
                self._pending[key] = digest, waiting.answer
            self._queue.append(waiting)
            self._changed.notify()
        return waiting.answer, False

    def keep(self, ids: Sequence[Any], x: Tensor) -> None:
        """Keep inputs (n, …) until their labels come; they are in the journal soon after, and nobody waits for it.

        The oldest inputs expire where there is no room. ValueError for bad ids, Busy if too many calls wait.
        """
        ids = checked_ids(ids, len(x))
        with self._changed:
            self._put(ids, x)
            self.call("keep", ids, x)

    def label(
        self, ids: Sequence[Any], y: Sequence[Any], *rest: Any, key: str | None = None, digest: str = ""
    ) -> tuple[Future[Any], bool]:
        """Put the observation of kept inputs into the queue, as `call` does; ValueError names ids that are not kept.

        If the observation is refused, the inputs wait again.

        Args:
            rest: the task and weights, as far as they are given.
        """
        ids = checked_ids(ids, len(y))
        with self._changed:
            if key is not None and (known := self._known(key, digest)) is not None:
                return known, True
            x = self.waiting.look(ids)
            answer, _ = self.call("label", ids, x, y, *rest, key=key, digest=digest)
            self.waiting.take(ids)
        return answer, False

    def withdraw(self, answer: Future[Any]) -> bool:
        """Take a call out of the queue; returns False if it is being made already."""
        with self._changed:
            for waiting in self._queue:
                if isinstance(waiting, _Waiting) and waiting.answer is answer:
                    self._queue.remove(waiting)
                    self._wait_again(waiting)
                    self._pending.pop(waiting.note.get("key", ""), None)
                    return True
        return False

    def ask(self, question: Callable[[Hosted], Any]) -> Future[Any]:
        """Ask something between two calls, when nothing changes the learner; gives the answer to come."""
        asked = _Question(question)
        with self._changed:
            if self._closing:
                raise Busy("the model is being closed")
            self._queue.append(asked)
            self._changed.notify()
        return asked.answer

    def save(self) -> None:
        """Write a checkpoint, between two calls."""
        self.ask(Hosted.saved_bytes).result()

    def saved_bytes(self) -> bytes:
        """Write a checkpoint and return its bytes; only for `ask`, between two calls."""
        self._save()
        return (self.folder / MODEL).read_bytes()

    def close(self, *, save: bool = True) -> None:
        """Make the calls that wait, write a checkpoint if there is something new, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        if save and self.journal.last > self._held:
            self._try_to_save()
        self.journal.close()

    # Everything below is done by the learning thread, or before it begins.

    def _load(self) -> None:
        path = self.folder / MODEL
        state = read_checkpoint(path)
        about = state["hosted"]
        self.learner = _learner_of(state, path)
        self.record = Record()
        self.record.load_state_dict(about["record"])
        self.waiting = Waiting(MOST_INPUTS)
        self.waiting.load_state_dict(about["waiting"])
        self._keys: OrderedDict[str, tuple[str, Any]] = OrderedDict(
            (key, (digest, answer)) for key, digest, answer in about["keys"]
        )
        self._snapshot: Snapshot | None = None
        self._journal_name: str = about["journal"]
        self._held: int = about["holds"]  # by the checkpoint at the path
        self._held_before = self._held  # by the checkpoint before it, which stands in for a damaged one
        self.journal = CallJournal(
            self.folder / self._journal_name,
            max_bytes=self.max_journal_bytes,
            segment_bytes=min(SEGMENT_BYTES, self.max_journal_bytes // 8),  # which are forgotten one by one
        )
        try:
            self.n_replayed = self.journal.replay(self._make_again, after=self._held)
        except BaseException:
            self.journal.close()
            raise
        self._unheld_bytes = self.journal.nbytes
        self.failure = None
        self._take_snapshot()

    def _make_again(self, call: Call) -> None:
        if call.name == "keep":
            self._put(call.args[0], call.args[1])
        answer = self._make(call.name, call.args, call.number)
        if call.name == "label":
            for key in call.args[0]:
                if key in self.waiting:
                    self.waiting.take([key])
        self._remember(call.note, answer)

    def _make(self, name: str, args: Sequence[Any], number: int) -> dict[str, Any]:
        """Make a call and measure it; the answer is plain."""
        if name not in CALLS:
            raise ValueError(f"the journal names the call '{name}', which no server makes")
        if name == "keep":
            return {"number": number, "n_observed": self.learner.n_observed}
        if name == "end_task":
            self.learner.end_task()
            return {"number": number, "n_observed": self.learner.n_observed}
        args = args[1:] if name == "label" else args
        x, y, task, weights = (*args, None, None)[:4]
        predicted = self._tested(x, y, task)
        loss = self.learner.observe(x, y, task, sample_weight=weights)
        self._record(x, predicted, y.tolist() if isinstance(y, Tensor) else list(y), weights)
        return {
            "loss": loss if math.isfinite(loss) else None,
            "number": number,
            "n_observed": self.learner.n_observed,
        }

    def _record(self, x: Tensor, predicted: list[Any] | None, y: list[Any], weights: Sequence[float] | None) -> None:
        """Take what was learned into the record, without samples of weight 0."""
        if weights is not None and (kept := [i for i, weight in enumerate(weights) if weight > 0]) != [*range(len(y))]:
            if not kept:
                return
            x, y = x[kept], [y[i] for i in kept]
            predicted = None if predicted is None else [predicted[i] for i in kept]
        self.record.learned(self.learner, x, predicted, y)

    def _tested(self, x: Tensor, y: Sequence[Any], task: int | None = None) -> list[Any] | None:
        """Predict what is about to be learned; None where the learner cannot yet."""
        known = task if predicts_by_task(self.learner.settings.setting) else None
        try:
            predicted = self.learner.predict(x, known)
        except (RuntimeError, ValueError):  # before anything was learned, or bad input, which observe refuses
            return None
        return predicted.tolist() if isinstance(predicted, Tensor) else list(predicted)

    def _put(self, ids: Sequence[Any], x: Tensor) -> None:
        with self._changed:
            if not len(self.waiting):
                self.waiting.capacity = max(1, min(MOST_INPUTS, INPUT_BYTES // max(1, x[0].nbytes)))
            self.waiting.put(ids, x)

    def _wait_again(self, waiting: _Waiting) -> None:
        """Let the inputs of a label that was refused wait again."""
        if waiting.name == "label":
            self._put(waiting.args[0], waiting.args[1])

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            if isinstance(taken, _Question):
                _settle(taken.answer, partial(taken.of, self))
                continue
            try:
                self._work_on(taken)
            except Exception as error:  # an error of our own: the thread lives, and the disk decides what was learned
                self.failure = f"{type(error).__name__}: {error}; the model is loaded again at the next call"
                self._fail([waiting for waiting in taken if not waiting.answer.done()], RuntimeError(self.failure))

    def _next(self) -> list[_Waiting] | _Question | None:
        """Wait for calls, and take those that are synced together; None at the end."""
        with self._changed:
            while not self._queue:
                if self._closing:
                    return None
                self._changed.wait()
            first = self._queue.popleft()
            if isinstance(first, _Question):
                return first
            group = [first]
            while self._queue and len(group) < GROUP and isinstance(waiting := self._queue[0], _Waiting):
                group.append(waiting)
                self._queue.popleft()
            return group

    def _work_on(self, group: list[_Waiting]) -> None:
        if self.failure is not None and not self._recovered():
            self._fail(group, NotDurable(self.failure))
            return
        before = self.journal.nbytes
        with self.turns.aside():
            self._learn([waiting for waiting in group if not self._answered_before(waiting)])
        self._unheld_bytes += self.journal.nbytes - before
        if self._unheld_bytes > SAVED_SHARE * self.max_journal_bytes:
            self._try_to_save()

    def _answered_before(self, waiting: _Waiting) -> bool:
        """Answer a call whose key is known by now: the disk may have held it when the model was loaded again."""
        known = self._keys.get(waiting.note.get("key", ""))
        if known is not None:
            self._answer(waiting, known[1], None)
        return known is not None

    def _learn(self, group: list[_Waiting]) -> None:
        written = self._written(group)
        if not written:
            return
        try:
            self.journal.sync(written[-1].number)
        except OSError as error:
            self._broke(written, error)
            return
        answers: list[tuple[_Waiting, Any, BaseException | None]] = []
        for place, waiting in enumerate(written):
            try:
                answer = self._make(waiting.name, waiting.args, waiting.number)
            except Exception as error:
                try:
                    self.journal.refuse(waiting.number)
                except OSError as failed:
                    self._broke(written[place:], failed)
                    break
                answers.append((waiting, None, error))
                continue
            self.journal.settle(waiting.number)
            self._remember(waiting.note, answer)
            answers.append((waiting, answer, None))
        self._refresh_snapshot()
        for waiting, answer, raised in answers:
            self._answer(waiting, answer, raised)

    def _written(self, group: list[_Waiting]) -> list[_Waiting]:
        """Write calls into the journal; those that cannot be written are answered so."""
        written = []
        for waiting in group:
            try:
                self._check(waiting)
                waiting.number = self.journal.write(waiting.name, waiting.args, note=waiting.note)
                written.append(waiting)
            except OSError as error:
                self._fail([waiting], NotDurable(error.errno, f"nothing was learned: {error.strerror or error}"))
                self._unheld_bytes += self.max_journal_bytes  # so that a checkpoint makes room, if it can
                if self.journal.is_broken:
                    self.failure = f"the disk failed ({error.strerror or error}); the model is loaded again"
            except ValueError as error:
                self._fail([waiting], error)
        return written

    def _check(self, waiting: _Waiting) -> None:
        """Raise ValueError for most of what the learner would refuse, before it is on disk."""
        if waiting.name != "observe":
            return
        x, y = waiting.args[:2]
        checked_inputs(x, shape=self.learner.input_shape, dtype=self.learner.input_dtype)
        if len(y) != len(x):
            raise ValueError(f"y has {len(y)} labels for {len(x)} samples: give one a sample")

    def _broke(self, group: list[_Waiting], error: OSError) -> None:
        """Answer that the disk failed. What is on it will decide when the model is loaded again."""
        self.failure = f"the disk failed ({error.strerror or error}); the model is loaded again at the next call"
        self._fail(group, NotDurable(error.errno, self.failure))

    def _recovered(self) -> bool:
        self.journal.close()
        try:
            self._load()
        except (OSError, ValueError) as error:
            self.failure = f"the model cannot be loaded again: {error}"
            return False
        return True

    def _fail(self, group: list[_Waiting], error: BaseException) -> None:
        for waiting in group:
            self._answer(waiting, None, error)

    def _answer(self, waiting: _Waiting, answer: Any, error: BaseException | None) -> None:
        with self._changed:
            self._pending.pop(waiting.note.get("key", ""), None)
        if error is None:
            waiting.answer.set_result(answer)
        else:
            self._wait_again(waiting)
            waiting.answer.set_exception(error)

    def _known(self, key: str, digest: str) -> Future[Any] | None:
        """Return the answer to a key that came before."""
        if (pending := self._pending.get(key)) is not None:
            before, answer = pending
        elif (done := self._keys.get(key)) is not None:
            before, answer = done[0], Future()
            answer.set_result(done[1])
        else:
            return None
        if before != digest:
            raise KeyTaken(f"the idempotency key '{key}' came before with another request: take a new key")
        return answer

    def _remember(self, note: dict[str, Any], answer: Any) -> None:
        if "key" not in note:
            return
        with self._changed:
            self._keys[note["key"]] = note["digest"], answer
            while len(self._keys) > N_KEYS:
                self._keys.popitem(last=False)

    def _refresh_snapshot(self) -> None:
        """Take a snapshot, unless calls wait and snapshots would take much of the time."""
        since = time.monotonic() - self._snapshot_at
        if not self._queue or since * SNAPSHOT_SHARE >= self._snapshot_seconds:
            self._take_snapshot()

    def _take_snapshot(self) -> None:
        if self.learner.n_observed == 0:
            return
        started = time.monotonic()
        try:
            self._snapshot = self.learner.snapshot()
        except Exception as error:  # the one before goes on predicting
            self.save_failure = f"no snapshot can be taken: {error}"
        self._snapshot_at = time.monotonic()
        self._snapshot_seconds = self._snapshot_at - started

    def _stored_keys(self) -> list[tuple[str, str, Any]]:
        return [(key, digest, answer) for key, (digest, answer) in self._keys.items()]

    def _try_to_save(self) -> None:
        try:
            self._save()
        except OSError as error:
            self.save_failure = str(error)

    def _save(self) -> None:
        last = self.journal.last
        with self._changed:
            waiting = self.waiting.state_dict()
        about = {"journal": self._journal_name, "holds": last, "keys": self._stored_keys(), "waiting": waiting}
        _write(self.folder, self.learner, {**about, "record": self.record.state_dict()})
        self._held_before, self._held = self._held, last
        self._unheld_bytes = 0
        self.save_failure = None
        self.journal.forget(self._held_before)


def create_hosted(folder: Path, learner: Learner, **limits: Any) -> Hosted:
    """Put a learner into a folder of its own, in place of one that is there, and open it.

    A crash leaves either the one that was there before or the new one, whole.
    """
    name = f"journal-{secrets.token_hex(4)}"
    about = {"journal": name, "holds": 0, "keys": [], "waiting": Waiting(MOST_INPUTS).state_dict()}
    _write(folder, learner, {**about, "record": Record().state_dict()})
    _clear(folder, name)
    return Hosted(folder, **limits)


def open_hosted(folder: Path, **limits: Any) -> Hosted:
    """Open the learner in a folder, as it was after the last call that was answered."""
    name = read_checkpoint(folder / MODEL)["hosted"]["journal"]
    _clear(folder, name)
    return Hosted(folder, **limits)


def _clear(folder: Path, journal: str) -> None:
    """Remove what belongs to a learner that was there before."""
    others = [path for path in folder.glob("journal-*") if path.name != journal]
    if others:
        previous_checkpoint(folder / MODEL).unlink(missing_ok=True)
    for path in others:
        shutil.rmtree(path, ignore_errors=True)


def _write(folder: Path, learner: Learner, about: State) -> None:
    write_checkpoint(folder / MODEL, {"hosted": about, "learner": learner.state_dict()})


def _learner_of(state: State, path: Path) -> Learner:
    if not isinstance(state.get("hosted"), dict):
        raise ValueError(f"{path} is not the model of a server: upload it with PUT /models/NAME/file")
    return load_learner(path)


def _settle(asked: Future[Any], answer: Callable[[], Any]) -> None:
    try:
        asked.set_result(answer())
    except Exception as error:
        asked.set_exception(error)
