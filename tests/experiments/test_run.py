"""A run is a pure function of an experiment and a folder, whatever happens to the process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from holdfast.core.checkpoint import previous_checkpoint
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.probes.accuracy import measured_accuracy
from holdfast.experiments.results import Refused, ResultStore
from holdfast.experiments.run import CHECKPOINT, Interrupted, run
from holdfast.learner import Learner
from holdfast.settings import Part
from holdfast.streams._base import Task
from tests.support.experiments import after, left_behind, toy_experiment
from tests.support.killed import run_in_a_process
from tests.support.same import assert_same
from tests.support.toy import Toy


def test_a_run_killed_again_and_again_ends_with_the_same_bits(tmp_path: Path) -> None:
    experiment = toy_experiment()
    undisturbed, killed = ResultStore(tmp_path / "undisturbed"), ResultStore(tmp_path / "killed")
    expected = run(experiment, undisturbed)
    killers = [
        "watcher = KillAt(5)",  # in the middle of the first task
        "watcher = KillAt(12)",  # after its last step, before it is tested
        "checkpoint.write_tensors = lambda *a: die()",  # before a checkpoint is written
        "real = checkpoint.write_tensors; checkpoint.write_tensors = lambda *a: (real(*a), die())",  # then
        "atomic.sync_folder = lambda *a: die()",  # after it was renamed
        "real = checkpoint.Path.replace; checkpoint.Path.replace = lambda s, t: (real(s, t), die())",  # in between
        "watcher = KillAt(30)",
        "module.versions = die",  # after the last step, before the result is written
    ]
    for killer in killers:
        assert run_in_a_process(experiment, killed.root, killer) == -signal.SIGKILL, killer
        assert killed.find(experiment) is None
    assert run_in_a_process(experiment, killed.root, "") == 0
    result = killed.find(experiment)
    assert result is not None
    assert result.accuracies == expected.accuracies
    assert result.footprint == expected.footprint
    assert_same(left_behind(killed, experiment), left_behind(undisturbed, experiment))
    assert not list(killed.folder(experiment).glob("*.writing"))


def test_a_run_with_dropout_restores_the_global_random_state(tmp_path: Path) -> None:
    experiment = toy_experiment(backbone={"name": f"{__name__}:Dropping"})
    expected = run(experiment, ResultStore(tmp_path / "a"))
    with pytest.raises(Interrupted):
        run(experiment, ResultStore(tmp_path / "b"), stop=after(7))
    assert run(experiment, ResultStore(tmp_path / "b")).accuracies == expected.accuracies
    assert_same(
        left_behind(ResultStore(tmp_path / "a"), experiment), left_behind(ResultStore(tmp_path / "b"), experiment)
    )


class Dropping(torch.nn.Module):
    """A backbone that draws from torch's global generator."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(input_shape[0], 12)
        self.n_features = 12

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(torch.relu(self.layer(x)), 0.5, self.training)


def test_a_run_leaves_the_global_random_state_alone(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    run(toy_experiment(), ResultStore(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(tmp_path: Path, damage: str) -> None:
    experiment = toy_experiment()
    expected = run(experiment, ResultStore(tmp_path / "a"))
    store = ResultStore(tmp_path / "b")
    with pytest.raises(Interrupted):
        run(experiment, store, checkpoint_seconds=0, stop=after(9))
    path = store.folder(experiment) / CHECKPOINT
    assert previous_checkpoint(path).exists()
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes(content if damage == "flipped" else content[:-100])
    with pytest.warns(UserWarning, match="damaged.*the one before"):
        result = run(experiment, store)
    assert result.accuracies == expected.accuracies


def test_when_no_checkpoint_is_whole_the_run_begins_anew_and_says_so(tmp_path: Path) -> None:
    experiment = toy_experiment()
    store = ResultStore(tmp_path)
    with pytest.raises(Interrupted):
        run(experiment, store, stop=after(3))
    (store.folder(experiment) / CHECKPOINT).write_bytes(b"no checkpoint")
    with pytest.warns(UserWarning, match="begins anew"):
        result = run(experiment, store)
    assert result.accuracies == run(experiment, ResultStore(tmp_path / "other")).accuracies


def test_a_finished_run_is_read_and_not_run_again(tmp_path: Path) -> None:
    experiment = toy_experiment()
    first = run(experiment, ResultStore(tmp_path))
    assert run(experiment, ResultStore(tmp_path), stop=_never_asked).seconds == first.seconds


def test_fresh_runs_again(tmp_path: Path) -> None:
    experiment = toy_experiment()
    run(experiment, ResultStore(tmp_path))
    with pytest.raises(Interrupted):
        run(experiment, ResultStore(tmp_path), fresh=True, stop=after(1))


def test_a_folder_of_another_configuration_is_refused(tmp_path: Path) -> None:
    experiment, store = toy_experiment(), ResultStore(tmp_path)
    with pytest.raises(Interrupted):
        run(experiment, store, stop=after(1))
    path = store.folder(experiment) / "experiment.json"
    path.write_text(path.read_text().replace('"memory": 30', '"memory": 31'))
    with pytest.raises(Refused, match="made with memory=31, not 30"):
        run(experiment, store)


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    experiment, store = toy_experiment(), ResultStore(tmp_path)
    with store.claimed(experiment), pytest.raises(Refused, match="another process"):
        run(experiment, store)


def test_a_full_disk_does_not_end_a_run_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import holdfast.experiments.run as module

    real, calls = module.write_checkpoint, []

    def full_at_first(path: Path, state: dict[str, object]) -> None:
        calls.append(path)
        if len(calls) < 4:
            raise OSError(28, "No space left on device")
        real(path, state)

    monkeypatch.setattr(module, "write_checkpoint", full_at_first)
    with pytest.warns(UserWarning, match="No space left"):
        result = run(toy_experiment(), ResultStore(tmp_path), checkpoint_seconds=0)
    assert len(result.accuracies) == 3


def test_the_free_setting_hides_tasks_from_the_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    observe = Learner.observe
    monkeypatch.setattr(
        Learner, "observe", lambda self, x, y, task=None: given.append(task) or observe(self, x, y, task)
    )
    monkeypatch.setattr(Learner, "announce", lambda *_: pytest.fail("announced"))
    monkeypatch.setattr(Learner, "end_task", lambda *_: pytest.fail("ended"))
    run(toy_experiment(setting="free"), ResultStore(tmp_path))
    assert given == [None] * (36 + 1)  # and one more, to see what a step keeps


def test_a_watcher_hears_every_step_and_what_papers_hide(tmp_path: Path) -> None:
    class Listening:
        facts: dict[str, str]
        moments: list[Moment]

        def begin(self, facts: dict[str, str], moment: Moment) -> None:
            self.facts, self.moments = facts, [moment]

        def step(self, moment: Moment) -> None:
            self.moments.append(moment)

    watcher = Listening()
    run(toy_experiment(), ResultStore(tmp_path), watcher=watcher)
    assert [moment.step for moment in watcher.moments] == list(range(37))
    assert watcher.moments[-1].n_steps == 36
    assert "30 samples = 1,440 bytes (48 a sample" in watcher.facts["memory"]  # 8 floats and two int64
    assert watcher.facts["pre-training"] == "none"
    for fact in ("setting", "tasks", "batch", "replay", "seed", "versions"):
        assert watcher.facts[fact]


def test_accuracy_is_the_mean_over_classes_where_the_stream_says_so() -> None:
    stream = Toy(shared=True)
    learner = Learner("finetune", setting="free", n_classes=2, input_shape=stream.input_shape)
    learner.method.model.seen.announce([0, 1], 0)
    learner.method.model.head.weight.data.zero_()
    learner.method.model.head.bias.data[:] = torch.tensor([1.0, 0.0])  # always says class 0
    task: Task = stream[0]
    zeros, ones = (task.test.y == 0).nonzero().flatten(), (task.test.y == 1).nonzero().flatten()
    uneven = Task(0, (0, 1), task.train, task.test.only(torch.cat([zeros[:9], ones[:3]])))
    assert measured_accuracy(learner, uneven, stream) == 0.75
    stream.per_class_accuracy = True
    assert measured_accuracy(learner, uneven, stream) == 0.5


def test_joint_tests_every_task_once(tmp_path: Path) -> None:
    stream = Part(name="joint", options={"of": "split_digits", "samples_per_task": 50})
    experiment = toy_experiment(stream=stream, method="finetune", setting="task")
    result = run(experiment, ResultStore(tmp_path))
    assert (len(result.accuracies), len(result.accuracies[0])) == (1, 5)
    assert set(result.metrics) == {"average_accuracy", "gigaflops_per_batch"}


def _never_asked() -> bool:
    raise AssertionError("a finished run was run again")
