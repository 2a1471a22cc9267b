"""Log to MLflow."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.experiments.differences import stated
from holdfast.experiments.probes._base import Plan
from holdfast.experiments.probes._logger import Logged, Logger, imported
from holdfast.learner import Learner


@dataclass(kw_only=True, eq=False)
class MLflow(Logger):
    """Metrics for MLflow at a tracking URI: a server, a data base or a folder.

    The benchmark is the experiment there, and the settings are the run's parameters.

    Attributes:
        run_id: of the run in MLflow; a continued run goes on with it.
    """

    derived: ClassVar = Logger.derived | {"client", "is_whole"}
    place: ClassVar[str] = "URI"

    run_id: str = field(default="", init=False)
    is_whole: bool = field(default=False, init=False)

    def open(self, plan: Plan) -> Logged:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow = imported("mlflow", extra="mlflow")
        if "://" not in self.to:  # a folder, which MLflow takes only if it is told so
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        try:
            self.client = mlflow.MlflowClient(tracking_uri=self.to)
        except mlflow.exceptions.MlflowException as error:
            raise ValueError(f"MLflow does not take '{self.to}': {error}") from error
        if self.run_id and plan.step:
            self.client.update_run(self.run_id, status="RUNNING")
            metrics = self.client.get_run(self.run_id).data.metrics
            history = {name: self.client.get_metric_history(self.run_id, name) for name in metrics}
            return {(name, number.step) for name, numbers in history.items() for number in numbers}
        experiment = plan.experiment
        found = self.client.get_experiment_by_name(experiment.benchmark)
        of = self.client.create_experiment(experiment.benchmark) if found is None else found.experiment_id
        run = self.client.create_run(
            of, run_name=f"{experiment.row} {experiment.seed}", tags={"holdfast.digest": experiment.digest}
        )
        self.run_id = run.info.run_id
        params = {"seed": str(experiment.seed), **stated(experiment)}
        entity = mlflow.entities.Param
        self.client.log_batch(self.run_id, params=[entity(name, value[:500]) for name, value in params.items()])
        return set()

    def log(self, step: int, values: dict[str, float]) -> None:
        now = int(1000 * time.time())
        metric = imported("mlflow.entities", extra="mlflow").Metric
        self.client.log_batch(self.run_id, metrics=[metric(name, value, now, step) for name, value in values.items()])

    def finish(self, learner: Learner) -> None:
        self.is_whole = True

    def close(self) -> None:
        if hasattr(self, "client") and self.run_id:
            self.client.set_terminated(self.run_id, "FINISHED" if self.is_whole else "KILLED")
