"""Log to Weights & Biases."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from holdfast.experiments.differences import stated
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probes._base import Plan
from holdfast.experiments.probes._logger import Logged, Logger, imported
from holdfast.learner import Learner

JOURNAL = "wandb-logged.txt"  # beside the result: what was handed over, as its own files cannot be read back


@dataclass(kw_only=True, eq=False)
class WandB(Logger):
    """History for Weights & Biases in the project `to`, kept in the folder of the run.

    Nothing is sent unless WANDB_MODE says so: `wandb sync` sends the folders later, one for each time that the run
    began or was continued.

    Attributes:
            run_id: of the run at Weights & Biases; a continued run goes on with it.
    """

    derived: ClassVar = Logger.derived | {"run", "is_whole", "journal"}
    place: ClassVar[str] = "PROJECT"
    needs_place: ClassVar[bool] = False

    run_id: str = field(default="", init=False)
    is_whole: bool = field(default=False, init=False)

    def open(self, plan: Plan) -> Logged:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = imported("wandb", extra="wandb")
        self.journal = plan.folder / JOURNAL
        goes_on = bool(plan.step and self.run_id)
        if not goes_on:
            self.run_id = secrets.token_hex(4)
            self.journal.unlink(missing_ok=True)
        experiment = plan.experiment
        try:
            self.run = self._begun(wandb, experiment, goes_on=goes_on)
        except wandb.errors.UsageError as error:
            raise ValueError(str(error)) from error
        if not goes_on or not self.journal.exists():
            return set()
        lines = [line.partition(" ") for line in self.journal.read_text().splitlines()]
        return {(name, int(step)) for step, _, name in lines}

    def log(self, step: int, values: dict[str, float]) -> None:
        self.run.log(values, step=step)
        with self.journal.open("a") as journal:
            journal.writelines(f"{step} {name}\n" for name in values)

    def finish(self, learner: Learner) -> None:
        self.is_whole = True

    def close(self) -> None:
        if hasattr(self, "run"):
            self.run.finish(exit_code=0 if self.is_whole else 1)

    def _begun(self, wandb: Any, experiment: Experiment, *, goes_on: bool) -> Any:
        return wandb.init(
            mode=os.environ.get("WANDB_MODE", "offline"),
            project=self.to or "holdfast",
            group=experiment.benchmark,
            name=experiment.label,
            id=self.run_id,
            resume="allow" if goes_on else None,
            config={"seed": experiment.seed, **stated(experiment)},
            dir=_new_folder(self.plan.folder),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", save_code=False, disable_git=True),
        )


def _new_folder(parent: Path) -> str:
    """Make a folder that no other process has used: names of Weights & Biases are alike within a second."""
    number = 1 + len(list(parent.glob("wandb-part-*")))
    folder = parent / f"wandb-part-{number}"
    folder.mkdir()
    return str(folder)
