"""The loop that every fuzzer runs: numbered random generators until enough were tried and the time is up.

Two environment variables change it. HOLDFAST_FUZZ_MINUTES gives all fuzzers together so many minutes, shared equally.
HOLDFAST_FUZZ_FIRST is the number of the first try: a failed test names the number that repeats it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass


class Try(random.Random):
    """A random generator that depends on the fuzzer's seed and on the number of the try only."""

    def __init__(self, seed: int, number: int) -> None:
        super().__init__(f"{seed}:{number}")
        self.number = number


@dataclass
class Count:
    """Tries of the fuzzer that runs or ran last; conftest.py reports it."""

    n_tries: int = 0
    last: int = -1  # the number of the last try


count = Count()
n_fuzzers = 1  # that share the minutes; conftest.py sets it


def tries(seed: int, at_least: int) -> Iterator[Try]:
    """Yield at least `at_least` generators, and more until the fuzzer's share of the minutes is over.

    Example:
        for rng in tries(seed=1, at_least=200):
            read(mutated(rng))
    """
    seconds = 60 * float(os.environ.get("HOLDFAST_FUZZ_MINUTES") or 0) / n_fuzzers
    first = int(os.environ.get("HOLDFAST_FUZZ_FIRST") or 0)
    until = time.monotonic() + seconds
    count.n_tries, count.last = 0, -1
    while count.n_tries < at_least or time.monotonic() < until:
        count.last = first + count.n_tries
        count.n_tries += 1
        yield Try(seed, count.last)
