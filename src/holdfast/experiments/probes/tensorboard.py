"""Log to TensorBoard."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from holdfast.experiments.probes._base import Plan
from holdfast.experiments.probes._logger import Logged, Logger, imported


@dataclass(kw_only=True, eq=False)
class TensorBoard(Logger):
    """Scalars for TensorBoard, in a folder for each run below `to`."""

    derived: ClassVar = Logger.derived | {"writer"}
    place: ClassVar[str] = "DIR"

    def open(self, plan: Plan) -> Logged:
        imported("tensorboard", extra="tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(self.to) / plan.experiment.path
        # A run that begins anew hides what an earlier one of the same experiment has logged.
        self.writer = SummaryWriter(str(folder), purge_step=None if plan.step else 0)
        return _logged(folder) if plan.step else set()

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()  # a killed run has logged what its checkpoint is past

    def close(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()


def _logged(folder: Path) -> Logged:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(folder), size_guidance={"scalars": 0})  # all of them
    log.Reload()
    return {(name, event.step) for name in log.Tags()["scalars"] for event in log.Scalars(name)}
