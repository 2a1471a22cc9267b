"""A record shows what a run did and changes nothing of it."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor

from holdfast.build import build_stream
from holdfast.core.checkpoint import read_checkpoint, write_checkpoint
from holdfast.core.drift import spread
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probes.record import N_COMPONENTS, RECORD, Record, _thumbnails, read_record
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import Interrupted, run
from holdfast.learner import Learner
from holdfast.streams._base import Stream
from tests.support.experiments import after, left_behind, toy_experiment
from tests.support.killed import run_in_a_process
from tests.support.same import assert_same


def digits(**changes: object) -> Experiment:
    settings = {
        "stream": {"name": "split_digits", "n_tasks": 3, "samples_per_task": 60},
        "method": "er",
        "setting": "task",
        "backbone": {"name": "mlp", "hidden": [80]},
        "memory": 40,
        "selection": {"name": "centroid", "epsilon": 2.0},
    }
    return Experiment.model_validate(settings | changes)


def recorded(experiment: Experiment, folder: Path) -> Record:
    store = ResultStore(folder)
    run(experiment, store, record=True)
    return read_record(store.folder(experiment) / RECORD)


@pytest.mark.parametrize("method", ["er", "drr", "finetune"])
def test_a_run_that_records_ends_with_the_same_bits(method: str, tmp_path: Path) -> None:
    experiment = toy_experiment(method=method)
    plain, recording = ResultStore(tmp_path / "plain"), ResultStore(tmp_path / "recording")
    expected, found = run(experiment, plain), run(experiment, recording, record=True)
    assert (found.accuracies, found.moved, found.apart) == (expected.accuracies, expected.moved, expected.apart)
    left = left_behind(recording, experiment)
    del left["probes"]["record"]
    assert_same(left, left_behind(plain, experiment))
    assert plain.folder(experiment).name == recording.folder(experiment).name
    assert not (plain.folder(experiment) / RECORD).exists()


def test_a_killed_run_records_what_one_never_killed_records(tmp_path: Path) -> None:
    experiment = toy_experiment()
    expected, killed = ResultStore(tmp_path / "a"), ResultStore(tmp_path / "b")
    run(experiment, expected, record=True)
    for killer in ("watcher = KillAt(20)", "watcher = KillAt(30)", "module.versions = die"):
        assert run_in_a_process(experiment, killed.root, killer, record=True) == -signal.SIGKILL
    # Begun with a record, it goes on with one.
    run(experiment, killed)
    one, other = (read_checkpoint(store.folder(experiment) / RECORD) for store in (expected, killed))
    assert_same(one, other)
    assert sorted(path.name for path in killed.folder(experiment).iterdir()) == sorted(
        path.name for path in expected.folder(experiment).iterdir()
    )


def test_a_run_begun_without_a_record_cannot_get_one_once_a_task_is_over(tmp_path: Path) -> None:
    experiment = toy_experiment()
    for n_steps, is_recorded in ((3, True), (20, False)):
        store = ResultStore(tmp_path / str(n_steps))
        with pytest.raises(Interrupted):
            run(experiment, store, stop=after(n_steps))
        if is_recorded:
            run(experiment, store, record=True)
        else:
            with pytest.warns(UserWarning, match="begun without --record"):
                run(experiment, store, record=True)
        assert (store.folder(experiment) / RECORD).exists() == is_recorded
    with pytest.warns(UserWarning, match="finished without --record"):
        run(experiment, store, record=True)


def test_features_are_the_principal_components_of_what_the_learner_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = digits()
    stream = build_stream(experiment.stream, None, experiment.seed)
    seen: list[Tensor] = []
    end_task = Learner.end_task

    def looking(learner: Learner) -> None:
        end_task(learner)
        seen.append(learner.features(stream[0].test[:].x))

    monkeypatch.setattr(Learner, "end_task", looking)
    record = recorded(experiment, tmp_path)
    raw = torch.stack(seen)
    assert record.features is not None
    assert record.features.shape == (3, len(stream[0].test), N_COMPONENTS)
    assert record.features.dtype == torch.float16
    assert torch.equal(record.y, stream[0].test.y)
    reference = PCA(N_COMPONENTS).fit(raw.flatten(0, 1).numpy())
    expected = reference.transform(raw.flatten(0, 1).numpy()) / spread(raw[0])
    found = record.features.flatten(0, 1).float().numpy()
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=3e-3)  # signs are free
    assert record.share == pytest.approx(reference.explained_variance_ratio_.sum(), abs=1e-5)


def test_the_memory_is_told_sample_by_sample(tmp_path: Path) -> None:
    experiment = digits()
    store = ResultStore(tmp_path)
    record = recorded(experiment, tmp_path)
    state = read_checkpoint(store.folder(experiment) / "checkpoint.safetensors")["learner"]["method"]
    columns, selection = state["memory"]["columns"], state["selection"]
    stream = build_stream(experiment.stream, None, experiment.seed)
    memory = record.memory
    assert memory is not None
    assert torch.equal(memory.y, columns["y"])
    assert torch.equal(memory.task, columns["task"])
    assert memory.distance is not None
    for slot, (task, y) in enumerate(zip(memory.task.tolist(), memory.y.tolist(), strict=True)):
        centre = selection["centres"][task, y][columns["extra.centroid"][slot]]
        assert memory.distance[slot].item() == pytest.approx(
            float((columns["extra.feature"][slot] - centre).norm()), rel=1e-5
        )
        batch = batch_number(int(memory.step[slot]), stream, experiment)
        assert any(torch.equal(x, columns["x"][slot]) for x in batch)
    assert record.n_steps == 18


def batch_number(step: int, stream: Stream, experiment: Experiment) -> Tensor:
    """The inputs of a batch counted over all tasks."""
    for task in stream:
        if step < task.n_steps(experiment.batch_size):
            return task.batch(step, size=experiment.batch_size, seed=experiment.seed).x
        step -= task.n_steps(experiment.batch_size)
    raise AssertionError(f"no step {step}")


def test_thumbnails_show_the_samples_that_they_name(tmp_path: Path) -> None:
    experiment = digits(selection="reservoir")
    record = recorded(experiment, tmp_path)
    state = read_checkpoint(ResultStore(tmp_path).folder(experiment) / "checkpoint.safetensors")
    x = state["learner"]["method"]["memory"]["columns"]["x"]
    memory = record.memory
    assert memory is not None
    assert memory.distance is None
    assert memory.thumbnails is not None
    assert sorted(memory.shown.tolist()) == list(range(40))
    for thumbnail, slot in zip(memory.thumbnails, memory.shown.tolist(), strict=True):
        expected = (x[slot].double() * 255 / 16).round().to(torch.uint8).reshape(8, 8, 1)
        assert torch.equal(thumbnail, expected)


def test_large_images_are_shrunk_and_vectors_have_no_picture() -> None:
    large = torch.zeros(2, 3, 64, 128, dtype=torch.uint8)
    large[:, 0, :32] = 200
    small = _thumbnails(large, 1 / 255)
    assert small is not None
    assert small.shape == (2, 16, 32, 3)
    assert torch.equal(small[0, :8, :, 0], torch.full((8, 32), 200, dtype=torch.uint8))
    assert not small[:, 8:].any()
    assert _thumbnails(torch.rand(2, 64), 1.0) is None
    assert _thumbnails(torch.zeros(2, 65, dtype=torch.uint8), 1.0) is None
    bytes_left_as_they_are = torch.tensor([0, 51, 102, 255], dtype=torch.uint8).reshape(1, 1, 2, 2)
    photograph = _thumbnails(bytes_left_as_they_are, 1.0)
    assert photograph is not None
    assert photograph.flatten().tolist() == [0, 51, 102, 255]
    floats = _thumbnails(torch.tensor([-1.0, 0.0, 1.0, 1.0]).reshape(1, 1, 2, 2), 1.0)
    assert floats is not None
    assert floats.flatten().tolist() == [0, 128, 255, 255]


def test_a_record_without_tasks_in_turn_or_without_memory_is_still_one(tmp_path: Path) -> None:
    joint = digits(stream={"name": "joint", "of": "split_digits", "samples_per_task": 60}, method="finetune")
    record = recorded(joint, tmp_path)
    assert record.features is None
    assert record.memory is None


def test_a_file_that_is_no_record_is_named(tmp_path: Path) -> None:
    experiment = digits()
    recorded(experiment, tmp_path)
    path = ResultStore(tmp_path).folder(experiment) / RECORD
    whole = read_checkpoint(path)
    broken = tmp_path / "broken" / RECORD
    changes: list[dict[str, object]] = [
        {"y": whole["y"][:-1]},
        {"features": whole["features"] * torch.inf},
        {"unknown": 1},
        {"memory": whole["memory"] | {"step": whole["memory"]["step"][:-1]}},
        {"memory": whole["memory"] | {"shown": whole["memory"]["shown"] + 1}},
        {"memory": whole["memory"] | {"thumbnails": whole["memory"]["thumbnails"].float()}},
        {"memory": whole["memory"] | {"thumbnails": whole["memory"]["thumbnails"][0]}},
        {"memory": 3},
        {"digest": None},
    ]
    for change in changes:
        write_checkpoint(broken, whole | change)
        with pytest.raises(ValueError, match=r"broken/record.safetensors is no record of a run"):
            read_record(broken)
        broken.unlink()
    broken.write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"broken/record.safetensors"):
        read_record(broken)
