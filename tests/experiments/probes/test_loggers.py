"""Logs in the real packages, without a network: what they hold is what the run has measured, and nothing twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.experiments.probes import _logger
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import Interrupted, run
from holdfast.methods.er import ER
from holdfast.settings import Part
from tests.support.experiments import after, toy_experiment

History = dict[str, list[tuple[int, float]]]  # by name, step and value
EXPERIMENT = toy_experiment()
CURVE = Part(name="curve", options={"every": 6})
EVERY = 4


def tensorboard_history(folder: Path, _: Path) -> History:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(folder / EXPERIMENT.path), size_guidance={"scalars": 0})
    log.Reload()
    return {name: [(each.step, each.value) for each in log.Scalars(name)] for name in log.Tags()["scalars"]}


def mlflow_history(folder: Path, _: Path) -> History:
    from mlflow import MlflowClient

    client = MlflowClient(str(folder))
    of = client.get_experiment_by_name(EXPERIMENT.benchmark)
    (found,) = client.search_runs([of.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["method"] == "er"
    names = found.data.metrics
    return {
        name: [(each.step, each.value) for each in client.get_metric_history(found.info.run_id, name)] for name in names
    }


def wandb_history(_: Path, run_folder: Path) -> History:
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # its own process writes the end of a file some time after the run
    history: History = {}
    for path in sorted(run_folder.glob("wandb-part-*/wandb/offline-run-*/*.wandb")):
        for data in _records(path.read_bytes()):
            found = Record.FromString(data)
            if found.WhichOneof("record_type") == "history":
                items = {
                    "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in found.history.item
                }
                for name, value in items.items():
                    if not name.startswith("_"):
                        history.setdefault(name, []).append((items["_step"], value))
    return history


def _records(content: bytes, block: int = 32768, header: int = 7) -> list[bytes]:
    """The records of a log of LevelDB, in which Weights & Biases keeps a run: each is in one or more parts."""
    found, parts, at = [], [], header
    while at + header <= len(content):
        if block - at % block < header:
            at += block - at % block
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts.append(content[at + header : at + header + length])
        at += header + length
        if kind in (1, 4):  # whole, or the last part
            found.append(b"".join(parts))
            parts = []
    return found


LOGGERS: dict[str, Callable[[Path, Path], History]] = {
    "tensorboard": tensorboard_history,
    "mlflow": mlflow_history,
    "wandb": wandb_history,
}


@pytest.mark.parametrize("name", LOGGERS)
def test_a_run_that_was_stopped_and_thrown_back_logs_all_and_nothing_twice(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed: pip install 'holdfast[{name}]'")
    if name == "tensorboard":
        # Files of one second are read in the order of their names, in which its count of files comes last: 10 before 9.
        from tensorboard.summary.writer import event_file_writer

        monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    place = {} if name == "wandb" else {"to": str(tmp_path / "log")}
    probes = [CURVE, Part(name=name, options={**place, "every": EVERY})]
    losses: dict[int, float] = {}

    class Listening:
        def begin(self, facts: object, moment: object) -> None: ...

        def step(self, moment: object) -> None:
            losses[moment.step] = moment.loss

    store = ResultStore(tmp_path / "runs")
    with pytest.raises(Interrupted):
        run(EXPERIMENT, store, probes=probes, stop=after(11))
    with pytest.MonkeyPatch.context() as patch:  # an error after step 11 loses what was learned since
        patch.setattr(ER, "observe", failing_at(6, ER.observe))
        with pytest.raises(ZeroDivisionError):
            run(EXPERIMENT, store, probes=probes)
    result = run(EXPERIMENT, store, probes=probes, watcher=Listening())

    history = LOGGERS[name](tmp_path / "log", store.folder(EXPERIMENT))
    ends = [12, 24, 36]
    for step, value in history["loss"]:
        assert step not in losses or value == pytest.approx(losses[step], rel=1e-6)
    assert [step for step, _ in history["loss"]] == list(range(EVERY, 37, EVERY))
    assert [step for step, _ in history["accuracy/average"]] == ends
    averages = [sum(filter(None, row)) / (t + 1) for t, row in enumerate(result.accuracies)]
    assert [value for _, value in history["accuracy/average"]] == pytest.approx(averages)
    steps = [step for step, _ in history["accuracy/seen"]]
    assert steps == sorted(set(steps))
    assert set(steps) <= {6, *ends, 18, 30}
    assert result.probes[name] == {}  # which does not say where


def failing_at(n: int, observe: Callable[[ER, object], float]) -> Callable[[ER, object], float]:
    left = iter(range(n, -1, -1))
    return lambda self, batch: observe(self, batch) * (1 // next(left) >= 0)


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"no_such_package_here, .* pip install 'tensorboard>=2.16'"):
        _logger.imported("no_such_package_here", extra="tensorboard")
