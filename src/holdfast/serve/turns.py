"""Turns of the threads of a server: whoever answers goes before whoever learns."""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.overrides import TorchFunctionMode

SWITCH_SECONDS = 0.0005  # of Python's threads; with the default of 0.005 an answer waits for a thread that learns
WAKING_SECONDS = 0.00002  # of the same while the loop waits: so soon it takes over from a thread that learns
ASIDE_SECONDS = 0.001  # for which an operation waits, at most
RECENT_SECONDS = 1.0  # after a prediction in which the next one is expected


class Turns:
    """Lets the event loop go first: a thread that learns waits before its next operation while the loop works.

    Python runs one thread at a time, and torch lets the next one run with each operation. A prediction and a batch
    that is learned therefore slow each other down many times over, unless one of them waits for the other.

    A thread stands aside for at most half of its time, so that learning goes on under any load.

    Example:
        >>> turns = Turns()
        >>> with turns.aside():  # no prediction was asked for: nothing waits
        ...     pass
    """

    def __init__(self) -> None:
        self._idle = threading.Event()  # the loop waits for requests
        self._idle.set()
        self._predicted = float("-inf")  # when

    def predicted(self) -> None:
        """Say that a prediction was asked for."""
        self._predicted = time.monotonic()

    def aside(self) -> AbstractContextManager[object]:
        """Context manager: operations of this thread stand aside, if predictions were asked for lately."""
        return _Aside(self._idle) if time.monotonic() - self._predicted < RECENT_SECONDS else nullcontext()

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return an event loop that says when it works."""
        return asyncio.SelectorEventLoop(_Waking(self._idle))


class _Aside(TorchFunctionMode):
    def __init__(self, idle: threading.Event) -> None:
        super().__init__()
        self._idle = idle
        self._began = time.monotonic()
        self._waited = 0.0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not self._idle.is_set():
            now = time.monotonic()
            if self._waited <= (now - self._began) / 2:
                self._idle.wait(ASIDE_SECONDS)
                self._waited += time.monotonic() - now
        return func(*args, **(kwargs or {}))


class _Waking(selectors.DefaultSelector):
    def __init__(self, idle: threading.Event) -> None:
        super().__init__()
        self._idle = idle
        idle.clear()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        sys.setswitchinterval(WAKING_SECONDS)
        self._idle.set()
        try:
            return super().select(timeout)
        finally:
            self._idle.clear()
            sys.setswitchinterval(SWITCH_SECONDS)

    def close(self) -> None:
        super().close()
        self._idle.set()
