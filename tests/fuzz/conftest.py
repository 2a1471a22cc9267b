"""Say how many tries each fuzzer made, and which try failed."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support import tries as loop

FOLDER = Path(__file__).parent
counts: dict[str, int] = {}  # of tries, by test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    loop.n_fuzzers = max(1, sum(map(_is_fuzzer, items)))


def _is_fuzzer(item: pytest.Item) -> bool:
    """Whether it is a test of this folder that calls `tries`."""
    if not isinstance(item, pytest.Function) or item.path.parent != FOLDER:
        return False
    return "tries" in item.function.__code__.co_names


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    loop.count.n_tries = 0
    try:
        yield
    finally:
        if _is_fuzzer(item):
            counts[item.nodeid] = loop.count.n_tries
            told = f"try {loop.count.last}, the {loop.count.n_tries}. of this run"
            item.add_report_section("call", "fuzz", f"{told}; HOLDFAST_FUZZ_FIRST={loop.count.last} begins with it")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, n_tries in counts.items():
        terminalreporter.write_line(f"{n_tries:,} tries: {name}")
