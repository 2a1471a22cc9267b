"""The command as a user calls it, in this process, since importing torch takes longer than all the rest."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast import parts
from holdfast.cli import main

SMALL = ["--set", "stream.n_tasks=2", "--set", "stream.samples_per_task=100"]


@dataclass
class Done:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def holdfast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """A function that calls the command in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command sets its own
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(parts, "last_places", [])
    monkeypatch.setenv("PYTHONSAFEPATH", "1")

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Done(int(ended.value.code or 0), printed.out, printed.err)

    return call
