"""Objects whose changes are in a journal before they are made, and are made again after a crash."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from holdfast.core.calls import Call, CallJournal
from holdfast.core.undo import Undo

MARK = "journaled"  # in a checkpoint: the number of the last record that it holds
BEGIN = "begin"  # the first record of a journal; it says what the object was made of

P = ParamSpec("P")
R = TypeVar("R")
J = TypeVar("J", bound="Journaled")


def journaled(change: Callable[Concatenate[J, P], R]) -> Callable[Concatenate[J, P], R]:
    """Decorate a method that changes a `Journaled` object: the call is on disk before it is made.

    A call from inside another journaled call is a part of it, and is not written. Without a journal nothing is done.
    """

    @functools.wraps(change)
    def call(self: J, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.opened_journal is None:
            return change(self, *args, **kwargs)
        made = functools.partial(change, self)
        return self.opened_journal.make(made, change.__name__, args, kwargs, n_done=lambda: self.n_done)

    call.__dict__["is_journaled"] = True
    return cast("Callable[Concatenate[J, P], R]", call)


class OpenedJournal:
    """A journal with the order of calls: one at a time, each written before it is made.

    Attributes:
        held: records that the last checkpoint holds.
    """

    def __init__(self, journal: CallJournal, held: int) -> None:
        self.journal = journal
        self.held = held
        self.lock = threading.RLock()

    def make(
        self,
        change: Callable[..., R],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        n_done: Callable[[], int],
    ) -> R:
        """Write a call and make it.

        Args:
            n_done: gives the changes of the object that were done. A call that raised after its change was made.
        """
        if self.lock._is_owned():  # type: ignore[attr-defined]  # a call inside a call
            return change(*args, **kwargs)
        with self.lock:
            before = n_done()
            with self.journal.recorded(name, args, kwargs, was_made=lambda: n_done() > before):
                return change(*args, **kwargs)

    def saved(self, number: int) -> None:
        """Forget what the checkpoint before the last one holds: the last one may be damaged."""
        with self.lock:
            self.journal.forget(self.held)
            self.held = max(self.held, number)

    def keep_for_undo(self, undo: Undo) -> None:
        """Write nothing down: what is in a journal stays there when a change is undone, and is refused."""


class Journaled:
    """Base class of objects with journaled methods. It has a journal once `open_journal` was called."""

    opened_journal: OpenedJournal | None = None
    n_done: int = 0  # see Transactional

    def open_journal(self, journal: str | Path | CallJournal, made_of: Mapping[str, Any], *, after: int = 0) -> int:
        """Make the calls of a journal again and write all later ones into it; returns how many were made.

        Args:
            journal: a folder, or a journal with a bound of its own.
            made_of: plain facts that decide how the object began. ValueError if the journal is of another one.
            after: the number of the last record that the object holds already, from a checkpoint.
        """
        if self.opened_journal is not None:
            raise ValueError(
                f"there is a journal already, {self.opened_journal.journal.journal.folder}: close it first"
            )
        calls = journal if isinstance(journal, CallJournal) else CallJournal(journal)

        made = 0

        def again(call: Call) -> None:
            nonlocal made
            if call.name == BEGIN:
                return
            if not getattr(getattr(type(self), call.name, None), "is_journaled", False):
                raise ValueError(f"the journal names '{call.name}', which is no journaled call")
            getattr(self, call.name)(*call.args, **call.kwargs)
            made += 1

        try:
            if calls.last == 0:
                with calls.recorded(BEGIN, (dict(made_of),)):
                    pass
            elif after == 0:
                _check_begin(calls, made_of)
            calls.replay(again, after=after)
        except BaseException:
            calls.close()
            raise
        self.opened_journal = OpenedJournal(calls, after)
        return made

    @contextmanager
    def journal_at_rest(self) -> Iterator[dict[str, int]]:
        """Context manager: no call is made inside. It gives what a checkpoint made inside has to say of the journal."""
        if self.opened_journal is None:
            yield {}
            return
        with self.opened_journal.lock:
            yield {MARK: self.opened_journal.journal.last}

    def journal_forgets(self, mark: Mapping[str, int]) -> None:
        """Forget what the checkpoint before the one with this mark holds. The one with the mark is on disk."""
        if self.opened_journal is not None and MARK in mark:
            self.opened_journal.saved(mark[MARK])

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: it is in no journal."""
        state = super().__getstate__()
        return {name: value for name, value in dict(state or {}).items() if name != "opened_journal"}  # type: ignore[call-overload]

    def close_journal(self) -> None:
        """Let go of the journal: later calls are in none. Without a journal nothing is done."""
        if self.opened_journal is not None:
            self.opened_journal.journal.close()
            self.opened_journal = None


def _check_begin(journal: CallJournal, made_of: Mapping[str, Any]) -> None:
    first = next(journal.calls(), None)
    if first is not None and first.number == 1 and first.args != (dict(made_of),):
        raise ValueError(
            f"the journal {journal.journal.folder} is of a learner with other settings, or of another "
            "version of it: give each learner its own"
        )
