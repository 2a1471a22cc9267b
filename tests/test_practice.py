"""What a learner has around its method: labels, probabilities, late labels, standardisation, alarms, recovery."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import torch

from holdfast import Learner, load_learner
from holdfast.core.calibration import expected_calibration_error
from holdfast.core.detectors import DetectorName
from holdfast.core.input_watch import InputWarning
from holdfast.core.recovery import RecoveryWarning
from holdfast.practice import Drift
from holdfast.settings import LearnerSettings
from tests.support.same import assert_same

SMALL: dict[str, Any] = {"backbone": {"name": "mlp", "hidden": [8]}, "memory": 40, "lr": 0.1}


def blobs(n: int, seed: int = 0, n_classes: int = 2, spread: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(n_classes, (n,), generator=rng)
    centres = 3 * torch.eye(n_classes, 3)
    return centres[y] + spread * torch.randn(n, 3, generator=rng), y


def taught(learner: Learner, n_batches: int = 20, names: Any = None, **given: Any) -> Learner:
    x, y = blobs(10 * n_batches, **given)
    for i in range(n_batches):
        part = y[10 * i : 10 * i + 10]
        learner.observe(x[10 * i : 10 * i + 10], part if names is None else [names[c] for c in part.tolist()])
    return learner


def again(learner: Learner, folder: Path) -> Learner:
    learner.save(folder / "learner")
    return load_learner(folder / "learner")


@pytest.mark.parametrize(
    "names", [["cat", "dog"], [("a", 1), ("b", 2)], [None, "x"], [True, False], [0.5, "half"]], ids=str
)
def test_labels_of_any_kind_are_learned_predicted_and_saved(names: list[Any], tmp_path: Path) -> None:
    learner = taught(Learner(**SMALL), names=names)
    x, y = blobs(50, seed=1)
    said = learner.predict(x)
    assert isinstance(said, list)
    assert np.mean([name == names[c] for name, c in zip(said, y.tolist(), strict=True)]) > 0.9
    assert sorted(learner.classes_, key=str) == sorted(names, key=str)
    loaded = again(learner, tmp_path)
    assert loaded.predict(x) == said
    assert loaded.classes_ == learner.classes_
    assert learner.snapshot().predict(x) == said
    assert_same(taught(loaded, names=names, seed=2).state_dict(), taught(learner, names=names, seed=2).state_dict())


def test_named_classes_are_learned_to_the_bits_of_numbered_ones() -> None:
    by_number, by_name = Learner(**SMALL), Learner(**SMALL)
    x, y = blobs(100)
    first = int(y[0])
    for i in range(0, 100, 10):
        by_number.observe(x[i : i + 10], (y[i : i + 10] != first).long())
        by_name.observe(x[i : i + 10], [["one", "other"][int(c != first)] for c in y[i : i + 10]])
    assert torch.equal(by_number.scores(x), by_name.scores(x))


def test_numbers_beyond_those_of_classes_are_labels_and_predicted_as_a_tensor() -> None:
    learner = taught(Learner(**SMALL))
    x, y = blobs(10, seed=1)
    assert torch.equal(learner.predict(x), learner.scores(x).argmax(dim=1))
    learner.observe(x, [10**12 if c else -7 for c in y.tolist()])
    assert learner.classes_ == [0, 1, *dict.fromkeys(10**12 if c else -7 for c in y.tolist())]
    said = learner.predict(x)
    assert said.dtype == torch.int64
    assert set(said.tolist()) <= {0, 1, 10**12, -7}


def test_a_refused_batch_leaves_the_labels_as_they_were() -> None:
    learner = taught(Learner(**SMALL), names=["a", "b"])
    before = learner.practice.state_dict() if learner.practice else {}
    x, _ = blobs(2)
    for wrong in (["a", {}], ["a"], ["a", float("nan")]):
        with pytest.raises(ValueError, match=r"label|y has"):
            learner.observe(x, wrong)
    with pytest.raises(ValueError, match="NaN"):
        learner.observe(x * torch.nan, ["new", "newer"])
    assert_same(learner.practice.state_dict() if learner.practice else {}, before)
    assert sorted(map(str, learner.classes_)) == ["a", "b"]


def test_a_head_of_stated_size_takes_so_many_labels() -> None:
    learner = Learner(n_classes=2, **SMALL)
    x, _ = blobs(2)
    learner.observe(x, ["a", "b"])
    with pytest.raises(ValueError, match="label 'c' is one more than the 2 classes"):
        learner.observe(x, ["a", "c"])
    with pytest.raises(ValueError, match="room for 2 classes"):
        Learner(n_classes=2, **SMALL).observe(x, [0, 10**6])


def test_top_gives_labels_by_their_scores() -> None:
    learner = taught(Learner(**SMALL), n_classes=3, names=["a", "b", "c"])
    x, _ = blobs(5, n_classes=3)
    order = learner.scores(x).argsort(dim=1, descending=True)
    expected = [[learner.classes_[c] for c in row[:2]] for row in order.tolist()]
    assert learner.predict(x, top=2) == expected
    assert [len(row) for row in learner.predict(x, top=9)] == [3] * 5
    with pytest.raises(ValueError, match="top is 0"):
        learner.predict(x, top=0)


def test_probabilities_of_an_overconfident_learner_are_calibrated_by_the_stream() -> None:
    rng = torch.Generator().manual_seed(0)

    def noisy(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = blobs(n, seed=int(torch.randint(10**6, (), generator=rng)))
        flipped = torch.rand(n, generator=rng) < 0.25
        return x, torch.where(flipped, 1 - y, y)

    learner = Learner("er", backbone="identity", memory=40, lr=4.0)  # so large steps that scores are too sure
    for _ in range(1500):
        learner.observe(*noisy(5))
    x, y = noisy(2000)
    raw = expected_calibration_error(learner.scores(x).softmax(dim=1), y)
    calibrated = expected_calibration_error(learner.predict_proba(x), y)
    assert raw > 0.1
    assert calibrated < raw / 2
    torch.testing.assert_close(learner.snapshot().predict_proba(x), learner.predict_proba(x))
    torch.testing.assert_close(learner.predict_proba(x).sum(dim=1), torch.ones(2000))


def test_what_is_far_from_all_that_is_remembered_is_unknown(tmp_path: Path) -> None:
    learner = taught(Learner(unknown=0.1, **SMALL), 300, names=["a", "b"])
    x, _ = blobs(400, seed=5)
    alarms = np.mean([decision.is_unknown for decision in learner.decision(x)])
    assert 0.01 < alarms < 0.25
    far = learner.decision(torch.tensor([[-30.0, -30.0, 60.0], [3.0, 0.0, 0.0]]))
    assert [decision.is_unknown for decision in far] == [True, False]
    assert far[1].label == "a"
    assert far[1].probability > 0.9
    assert again(learner, tmp_path).decision(x[:50]) == learner.snapshot().decision(x[:50]) == learner.decision(x[:50])


def test_to_call_something_unknown_takes_a_rate_and_a_memory() -> None:
    x, y = blobs(10)
    learner = Learner(**SMALL)
    learner.observe(x, y)
    with pytest.raises(ValueError, match=r"unknown=0\.05"):
        learner.decision(x)
    with pytest.raises(ValueError, match="between 0 and 1"):
        Learner(unknown=2.0)
    without = Learner("finetune", unknown=0.1, **SMALL)
    with pytest.raises(ValueError, match="Finetune remembers no samples"):
        without.observe(x, y)
    with pytest.raises(RuntimeError, match="nothing was learned"):
        without.predict(x)


def test_late_labels_are_learned_out_of_order_and_expired_inputs_are_counted(tmp_path: Path) -> None:
    late, direct = (taught(Learner(waiting=8, **SMALL)) for _ in range(2))
    x, y = blobs(10, seed=3)
    assert torch.equal(late.predict(x, ids=list(range(10))), direct.predict(x))
    assert late.practice is not None
    assert late.practice.waiting.n_expired == 2
    late = again(late, tmp_path)
    late.label([7, 3], y[[7, 3]])
    direct.observe(x[[7, 3]], y[[7, 3]])
    assert torch.equal(late.scores(x), direct.scores(x))
    with pytest.raises(ValueError, match="no input waits under 7, 0"):
        late.label([7, 9, 0], y[[7, 9, 0]])
    with pytest.raises(ValueError, match="y has shape"):
        late.label([9, 8], [1])
    assert late.practice is not None
    assert len(late.practice.waiting) == 6


def test_raw_columns_of_any_scale_are_learned_as_if_they_were_scaled() -> None:
    scale = torch.tensor([1e-4, 1.0, 1e6])
    shift = torch.tensor([0.0, 5e3, -1e7])
    for learner in (Learner(**SMALL), Learner("er")):
        for i in range(60):
            x, y = blobs(10, seed=i)
            learner.observe(x * scale + shift, y)
        x, y = blobs(200, seed=99)
        assert (learner.predict(x * scale + shift) == y).double().mean() > 0.95


def test_standardisation_is_saved_and_can_be_left_out(tmp_path: Path) -> None:
    learner = taught(Learner(**SMALL))
    scaling = learner.method.model.scaling
    assert scaling is not None
    assert scaling.count == 200
    loaded = again(learner, tmp_path)
    assert_same(taught(loaded, seed=2).state_dict(), taught(learner, seed=2).state_dict())
    raw = taught(Learner(standardise=False, **SMALL))
    neutral = Learner.from_settings(LearnerSettings.model_validate(raw.settings.model_dump()))
    assert torch.equal(taught(neutral).scores(blobs(9)[0]), raw.scores(blobs(9)[0]))
    for method in ("slda", "hedge"):
        assert taught(Learner(method, backbone="identity"), 2).method.model.scaling is None
    pictures = Learner(**SMALL, standardise=True)
    with pytest.raises(ValueError, match="no vectors"):
        pictures.observe(torch.rand(4, 3, 2, 2), [0, 1, 0, 1])


def test_a_saved_standardisation_of_other_inputs_is_refused() -> None:
    learner = taught(Learner(**SMALL))
    state = learner.state_dict()
    for name in ("mean", "squares"):
        state["method"]["model"]["_extra_state"]["scaling"][name] = torch.zeros(1, dtype=torch.float64)
    with pytest.raises(ValueError, match="none of inputs of shape"):
        learner.load_state_dict(state)


def test_channels_that_come_last_are_warned_of() -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (4, 16, 16, 3), dtype=np.uint8)
    with pytest.warns(InputWarning, match="axis 3 holds the channels"):
        Learner(**SMALL).observe(pictures, [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("standardise", "scale", "message"),
    [(None, [1.0, 0.0, 1.0], "column 1 had one value"), (False, [1.0, 1.0, 1e4], "column 2 is unscaled")],
    ids=["constant", "unscaled"],
)
def test_columns_that_are_hard_to_learn_from_are_warned_of(
    standardise: bool | None, scale: list[float], message: str
) -> None:
    learner = Learner(standardise=standardise, **(SMALL | {"lr": 1e-9}))
    x, y = blobs(100)
    with pytest.warns(InputWarning, match=message):
        learner.observe(x * torch.tensor(scale), y)


@pytest.mark.filterwarnings("ignore:column:holdfast.core.input_watch.InputWarning")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_stream_that_runs_away_goes_back_to_its_last_good_weights(momentum: float) -> None:
    def stream(learner: Learner) -> float:
        for i in range(200):
            x, y = blobs(10, seed=i)
            learner.observe(1e4 * x, y)
        x, y = blobs(200, seed=999)
        return float((learner.predict(1e4 * x) == y).double().mean())

    learner = Learner(standardise=False, **(SMALL | {"momentum": momentum}))
    with pytest.warns(RecoveryWarning, match="learning ran away"):
        accuracy = stream(learner)
    assert accuracy > 0.7
    assert learner.practice is not None
    assert learner.practice.recovery is not None
    assert learner.practice.recovery.n_recovered > 1
    assert learner.method.optimizer.param_groups[0]["lr"] < 0.1


def run_away(learner: Learner, scale: float) -> None:
    for i in range(12):
        x, y = blobs(10, seed=100 + i)
        learner.observe(scale * x, 1 - y)


@pytest.mark.filterwarnings("ignore:column:holdfast.core.input_watch.InputWarning")
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_loaded_learner_goes_back_to_the_good_weights_of_the_one_that_was_saved(
    optimizer: Literal["sgd", "adam"], tmp_path: Path
) -> None:
    learner = Learner(standardise=False, average=0.9, **(SMALL | {"optimizer": optimizer}))
    for i in range(70):  # good weights are kept after 50
        learner.observe(*blobs(10, seed=i))
    loaded = again(learner, tmp_path)
    for each in (learner, loaded):
        with pytest.warns(RecoveryWarning, match="learning ran away"):
            run_away(each, 100)
    assert_same(loaded.state_dict(), learner.state_dict())


@pytest.mark.parametrize("weight", [torch.zeros(2, 99), torch.full((2, 8), float("nan"))], ids=["shape", "nan"])
def test_saved_good_weights_that_do_not_fit_the_learner_are_refused(weight: torch.Tensor) -> None:
    learner = Learner(**SMALL)
    learner.observe(*blobs(10))
    state = copy.deepcopy(learner.state_dict())
    state["practice"]["recovery"]["good"]["model"]["head.weight"] = weight
    with pytest.raises(ValueError, match=r"head\.weight|NaN"):
        learner.load_state_dict(state)


def test_of_sums_no_good_weights_are_kept() -> None:
    learner = Learner("slda", backbone="identity")
    learner.observe(*blobs(10))
    assert learner.practice is not None
    assert learner.practice.recovery is not None
    assert learner.practice.recovery.good == {}
    assert not learner.method.learned_tensors()


@pytest.mark.parametrize("detector", ["adwin", "ddm", "page_hinkley"])
def test_boundaries_are_found_in_free_and_end_tasks_there(detector: DetectorName, tmp_path: Path) -> None:
    learner = Learner("ewc", strength=1.0, boundaries=detector, **(SMALL | {"memory": 10}))
    found: list[Drift] = []
    learner.on_drift(found.append)
    for i in range(300):
        x, y = blobs(10, seed=i)
        learner.observe(x, y if i < 200 else 1 - y)
        if i in (10, 202):
            learner = again(learner, tmp_path)
            learner.on_drift(found.append)
    assert len(found) == 1
    assert found[0].signal == "loss"
    assert 200 < found[0].n_observed < 230
    assert learner.method.n_consolidated == 1  # type: ignore[attr-defined]


def test_boundaries_are_refused_where_tasks_are_known_and_callbacks_without_them() -> None:
    with pytest.raises(ValueError, match="in the setting 'free' only"):
        Learner("ewc", setting="class", boundaries="adwin")
    with pytest.raises(ValueError, match="boundaries='adwin'"):
        Learner("er").on_drift(print)


def test_a_learner_of_an_experiment_has_nothing_around_its_method() -> None:
    learner = Learner.from_settings(LearnerSettings.model_validate(SMALL))
    with warnings.catch_warnings(action="error"):
        x, y = blobs(10)
        learner.observe(x * 1e4, y)
    assert learner.practice is None
    assert learner.method.model.scaling is None
    assert torch.equal(learner.predict_proba(x), learner.scores(x).softmax(dim=1))
    with pytest.raises(ValueError, match="nothing around its method"):
        learner.predict(x, ids=list(range(10)))
    with pytest.raises(ValueError, match="cannot be read as numbers"):
        learner.observe(x, ["a"] * 10)


def test_a_warning_names_the_column_of_a_frame_or_the_name_that_was_given() -> None:
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)).numpy()
    x[:, 1] *= 5000
    names = ["age", "salary", "height"]
    frame = pd.DataFrame(x, columns=names)
    for learner, given in (
        (Learner("er", standardise=False), frame),
        (Learner("er", standardise=False, column_names=names), x),
    ):
        with pytest.warns(InputWarning, match="column 'salary' is unscaled"):
            learner.observe(given, pd.Series([0, 1] * 50))


def test_columns_of_a_frame_in_another_order_are_refused() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0], "size": [3.0, 4.0]})
    learner = Learner("er")
    learner.observe(frame, [0, 1])
    with pytest.raises(ValueError, match=r"columns are \['size', 'age'\], but were \['age', 'size'\] before"):
        learner.observe(frame[["size", "age"]], [0, 1])
    learner.observe(frame, [1, 0])
    with pytest.raises(ValueError, match="3 names for 2 columns"):
        Learner("er", column_names=["a", "b", "c"]).observe(frame.to_numpy(), [0, 1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_a_journal_takes_frames(dtype: str, tmp_path: Path) -> None:
    frame, labels = pd.DataFrame({"a": [1, 2], "b": [3, 4]}).astype(dtype), pd.Series(["yes", "no"])
    learner = Learner("er", journal=tmp_path)
    learner.observe(frame, labels, sample_weight=pd.Series([1.0, 2.0]))
    learner.close_journal()
    again = Learner("er", journal=tmp_path)
    again.close_journal()
    assert_same(again.state_dict(), learner.state_dict())
