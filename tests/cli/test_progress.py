"""Lines of progress of a run where there is no terminal."""

from __future__ import annotations

import io

import pytest

from holdfast.cli import progress
from holdfast.cli.printing import console
from holdfast.experiments.probes._base import Moment


def moment(step: int) -> Moment:
    return Moment(task=step // 100, n_tasks=3, step=step, n_steps=300, loss=0.5, accuracy=0.875)


def said(monkeypatch: pytest.MonkeyPatch, *, quiet: bool) -> list[str]:
    """The lines of a run of 300 steps, one a second."""
    now = [0.0]
    err = console(file=io.StringIO(), width=200)
    monkeypatch.setattr(progress, "err", err)
    monkeypatch.setattr(progress, "out", console(file=io.StringIO()))
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.RunWatcher("toy er seed 1", quiet=quiet) as watcher:
        watcher.begin({}, moment(0))
        for step in range(1, 300):
            now[0] += 1
            watcher.step(moment(step))
    return err.file.getvalue().splitlines()


def test_a_line_comes_from_time_to_time_where_there_is_no_terminal(monkeypatch):
    lines = said(monkeypatch, quiet=False)
    assert len(lines) == 9  # every 30 seconds
    assert lines[3] == "toy er seed 1: task 2/3, step 120 of 300, A 87.5 %, about 3 min left"


def test_a_quiet_run_says_nothing(monkeypatch):
    assert said(monkeypatch, quiet=True) == []
