"""Errors raised at a chosen line of the package's code, as Ctrl-C or a lack of memory raises them anywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class AtLine:
    """Trace function that counts the lines run in the package, and raises at one of them.

    Args:
        n: number of the line at which `error` is raised; None counts only.
        again_in: the end of a file's name; after the first error another is raised in this file.
        again_after: that many lines of the file.
    """

    def __init__(
        self,
        n: int | None = None,
        error: type[BaseException] = KeyboardInterrupt,
        *,
        again_in: str | None = None,
        again_after: int = 0,
    ) -> None:
        self.n, self.error, self.again_in, self.again_after = n, error, again_in, again_after
        self.count = 0
        self.file, self.line = "", 0

    @property
    def where(self) -> str:
        """File and line at which the error was raised; empty before."""
        return self.file and f"{self.file}:{self.line}"

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if "/holdfast/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.count += 1
            if self.count == self.n:
                self.file, self.line = frame.f_code.co_filename, frame.f_lineno
                raise self.error(f"injected at {self.where}")
            if self.where and self.again_in and frame.f_code.co_filename.endswith(self.again_in):
                self.again_after -= 1
                if self.again_after == -1:
                    raise self.error(f"injected again, after {self.where}")
        return self

    def run(self, action: Callable[..., object], *arguments: Any) -> bool:
        """Run `action`; return True if the error was raised out of it."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            action(*arguments)
        except self.error as error:
            if "injected" not in str(error):
                raise
            return True
        finally:
            sys.settrace(before)
        return False
