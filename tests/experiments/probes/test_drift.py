import pytest
import torch

from holdfast import DriftWatch, Learner
from holdfast.experiments.probes.drift import Drift
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.experiments.tables import drift_rows
from tests.support.experiments import toy_experiment
from tests.support.toy import Toy, toy_batches


def test_a_run_records_drift_after_each_task(tmp_path):
    result = run(toy_experiment(), ResultStore(tmp_path))
    assert [len(row) for row in result.moved] == [1, 2, 3]
    assert [row[-1] for row in result.moved] == [0, 0, 0]  # a task that was just learned is where it was
    assert all(distance > 0 for t, row in enumerate(result.moved) for distance in row[:t])
    assert [[len(row) for row in rows] for rows in result.apart] == [[0], [0, 1], [0, 1, 2]]
    header, lines = drift_rows(result)
    assert len(lines) == 3
    assert lines[2][1] == f"{result.moved[2][0]:.2f}"
    assert len(header) == len(lines[0])


def test_a_model_that_stays_does_not_drift():
    stream = Toy()
    learner = Learner("finetune", input_shape=stream.input_shape, n_classes=6)
    record = Drift()
    for t in (1, 2, 3):
        record.after_task(learner, stream[:t])
    assert record.moved == [[0], [0, 0], [0, 0, 0]]
    assert record.apart[1][1] == record.apart[2][1]  # nor do tasks come nearer


def test_a_practitioner_sees_how_far_each_class_moves():
    batches = toy_batches("free")
    learner = Learner("finetune", lr=0.1, backbone={"name": "mlp", "hidden": [16]})
    for x, y, _ in batches[:12]:
        learner.observe(x, y)
    x, y, _ = batches[0]
    watch = DriftWatch(learner, x, y, every=6)
    assert watch.moved(learner) == {0: 0, 1: 0}
    learner.watch(watch)
    for more_x, more_y, _ in batches[12:]:
        learner.observe(more_x, more_y)
    assert list(watch.history) == [18, 24, 30, 36]
    now = learner.features(x)
    then = watch.then[y == 0]
    spread = (then - then.mean(dim=0)).square().sum(dim=1).mean().sqrt()
    expected = torch.linalg.vector_norm(now[y == 0] - then, dim=1).mean() / spread
    assert watch.history[36][0] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    "saved",
    [[torch.zeros(50, dtype=torch.int8)], [torch.zeros(3, 2), torch.zeros(3, 4)], [torch.zeros(3, 2)] * 2],
    ids=["bytes", "other widths", "more tasks"],
)
def test_saved_features_that_are_none_are_refused(saved):
    with pytest.raises(ValueError, match="saved features"):
        Drift().load_state_dict({**Drift().state_dict(), "when_learned": saved, "moved": [[0.0]], "apart": [[[]]]})


def test_saved_features_of_other_samples_are_refused():
    stream = Toy()
    learner = Learner("finetune", input_shape=stream.input_shape, n_classes=6)
    record = Drift()
    record.after_task(learner, stream[:1])
    record.when_learned = [torch.zeros(3, 4)]
    with pytest.raises(ValueError, match="not those of its samples"):
        record.after_task(learner, stream[:2])
