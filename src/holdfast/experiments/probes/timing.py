"""Seconds that a run learns, and seconds that it is measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.experiments.probes._base import Probe


@dataclass(kw_only=True, eq=False)
class Timing(Probe):
    """Seconds that a run learns, batches being read included, and seconds that its probes take."""

    follows: ClassVar = "nothing"

    seconds: float = field(default=0.0, init=False)
    seconds_testing: float = field(default=0.0, init=False)

    def learning(self) -> AbstractContextManager[None]:
        """Context manager: time inside counts as learning."""
        return self._added_to("seconds")

    def testing(self) -> AbstractContextManager[None]:
        """Context manager: time inside counts as testing."""
        return self._added_to("seconds_testing")

    @contextmanager
    def _added_to(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) + time.perf_counter() - begun)

    def result(self) -> dict[str, Any]:
        return {"seconds": round(self.seconds, 3), "seconds_testing": round(self.seconds_testing, 3)}
