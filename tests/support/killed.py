"""Runs in processes of their own, which die where a test wants them to."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch

import holdfast.core.atomic as atomic
import holdfast.core.checkpoint as checkpoint
import holdfast.experiments.run as module
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.results import ResultStore
from tests.support.processes import PROCESSES


def run_in_a_process(experiment: Experiment, folder: Path, killer: str, *, record: bool = False) -> int:
    """Run in a process of its own, with the lines of `killer` executed first; gives its exit code."""
    process = PROCESSES.Process(target=_run, args=(experiment.model_dump_json(), folder, killer, record))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run(experiment: str, folder: Path, killer: str, record: bool) -> None:
    torch.set_num_threads(1)
    scope: dict[str, Any] = {"module": module, "checkpoint": checkpoint, "atomic": atomic, "die": die, "KillAt": KillAt}
    scope["watcher"] = None
    exec(killer, scope)
    store = ResultStore(folder)
    module.run(
        Experiment.model_validate_json(experiment), store, checkpoint_seconds=0, watcher=scope["watcher"], record=record
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillAt:
    def __init__(self, step: int) -> None:
        self.at = step

    def begin(self, facts: dict[str, str], moment: Moment) -> None: ...

    def step(self, moment: Moment) -> None:
        if moment.step == self.at:
            die()
