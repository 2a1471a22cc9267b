"""Changes that happen as a whole or not at all, whatever is raised inside, and one after the other between threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any, TypeVar

import torch

from holdfast.core.undo import Undo

T = TypeVar("T")


class Transactional:
    """Base class of an object that is changed in transactions, while other threads read it.

    A change is undone if anything is raised inside, KeyboardInterrupt included. Should the undoing be interrupted
    too, the next use of the object finishes it.

    Attributes:
        n_done: changes that were done, in this process.
    """

    def __init__(self) -> None:
        self._held = threading.RLock()  # by the thread that changes or reads
        self._gate = threading.RLock()  # held by a thread that waits to read
        self._undo = Undo()
        self.n_done = 0
        self._changing: FrameType | None = None  # of the change that is neither done nor undone

    def keep_for_undo(self, undo: Undo) -> None:
        """Write down everything that a change may reach."""
        undo.attributes(self, but=_OWN)
        undo.keep_all([value for name, value in vars(self).items() if name not in _OWN])

    def change(self, action: Callable[[], T]) -> T:
        """Do `action` as a whole or not at all.

        Raises:
            RuntimeError: it is called inside another change of this object, by a watcher for example.
        """
        with self._gate:  # a lock is not fair: who waits to read goes first
            pass
        with self._held:
            if self._is_changing():
                raise RuntimeError("a change of a learner was asked for inside another one: wait until it is over")
            with_gradients = torch.is_grad_enabled()
            self._undo.begin(self)
            self._changing = sys._getframe()
            try:
                if not with_gradients:
                    torch.set_grad_enabled(True)
                result = action()
                vars(self).update(_changing=None, n_done=self.n_done + 1)  # at this instant the change is done
                self._undo.close()
            except BaseException:
                self._take_back()
                raise
            finally:
                if torch.is_grad_enabled() != with_gradients:  # an error can have left it so
                    torch.set_grad_enabled(with_gradients)
            return result

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Transactional.__init__(self)
        vars(self).update(state)

    def _take_back(self) -> None:
        if self._changing is not None:
            self._undo.roll_back()
            self._changing = None

    def _is_changing(self) -> bool:
        """Return True inside a change. A change that was left without being undone is undone now."""
        if self._changing is None:
            return False
        if not self._held.acquire(blocking=False):  # another thread is changing it
            return False
        try:
            frame: FrameType | None = sys._getframe()
            while frame is not None:
                if frame is self._changing:
                    return True
                frame = frame.f_back
            self._take_back()
            return False
        finally:
            self._held.release()

    def _turn(self) -> AbstractContextManager[object]:
        return nullcontext() if self._held._is_owned() else self._gate  # type: ignore[attr-defined]

    @property
    def _lock(self) -> AbstractContextManager[object]:
        return self._held


_OWN = frozenset(vars(Transactional()))
