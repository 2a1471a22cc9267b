"""Processes that need not import torch: each is forked from one that has imported it."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from holdfast.experiments import processes

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["holdfast.experiments.ray_sweep", "holdfast.experiments.run"])


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of sweeps of this process begin at once."""
    forkserver.ensure_running()  # here, since all that a sweep starts has signals blocked
    monkeypatch.setattr(processes, "START", "forkserver")


class Begun(NamedTuple):
    """A command that runs, and what it prints."""

    process: multiprocessing.process.BaseProcess
    stdout: TextIO
    stderr: TextIO

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid


@contextmanager
def begun(folder: Path, *arguments: str) -> Iterator[Begun]:
    """Context manager: yield a command that was called in `folder`, in a session of its own; wait for it at the end."""
    (out, out_there), (err, err_there) = PROCESSES.Pipe(duplex=False), PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_call, args=(arguments, folder, dict(os.environ), out_there, err_there))
    process.start()
    for end in (out_there, err_there):
        end.close()
    with os.fdopen(os.dup(out.fileno())) as stdout, os.fdopen(os.dup(err.fileno())) as stderr:
        yield Begun(process, stdout, stderr)
        process.join()
    for end in (out, err):
        end.close()


def _call(
    arguments: tuple[str, ...], folder: Path, environment: dict[str, str], out: Connection, err: Connection
) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, end in ((1, out), (2, err)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
    sys.argv = ["holdfast", *arguments]
    from holdfast.cli import main  # once the streams are there

    main()
