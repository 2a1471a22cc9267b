from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holdfast.build import build_model
from holdfast.data.places import MissingData
from holdfast.experiments.features import compute_features
from holdfast.settings import LearnerSettings, Part
from holdfast.streams._feature_file import FOLDER, read_features
from holdfast.streams.features import Features
from holdfast.streams.permuted_digits import PermutedDigits
from holdfast.streams.split_cifar100 import SplitCifar100

STREAM = Part(name="split_cifar100")
BACKBONE = Part(name="reduced_resnet18", options={"width": 8})


@pytest.fixture(scope="module")
def stored(made_up_data: Path) -> Path:
    return compute_features(STREAM, BACKBONE, data=made_up_data, seed=3).write(made_up_data / FOLDER)


def test_inputs_are_the_features_that_the_backbone_makes(made_up_data: Path, stored: Path):
    plain = SplitCifar100(made_up_data, seed=5)
    stream = Features(SplitCifar100(made_up_data, seed=5), made_up_data, cache=stored.stem)
    settings = LearnerSettings(backbone=BACKBONE, seed=3)
    model = build_model(settings, plain.input_shape, scale=plain.scale, mean=plain.mean)
    assert stream.input_shape == (64,)
    for task, original in zip(stream[:3], plain[:3], strict=True):
        assert torch.equal(task.train.rows, original.train.rows)
        batch, raw = task.batch(0, size=4, seed=2), original.batch(0, size=4, seed=2)
        assert torch.equal(batch.y, raw.y)
        torch.testing.assert_close(batch.x, model.embed(raw.x))
        torch.testing.assert_close(task.test[:2].x, model.embed(original.test[:2].x))


def test_the_tasks_for_tuning_and_another_seed_have_features_too(made_up_data: Path, stored: Path):
    for options in ({"tasks": "tuning"}, {"seed": 9}, {"held_out": 0, "classes_per_task": 10}):
        stream = Features(SplitCifar100(made_up_data, **options), made_up_data, cache=stored.stem)
        assert stream[0].train[:1].x.shape == (1, 64)


def test_a_name_without_checksum_finds_the_only_file(made_up_data: Path, stored: Path):
    stream = Features(SplitCifar100(made_up_data), made_up_data, cache="split_cifar100-reduced_resnet18")
    assert stream.cache == stored.stem


def test_what_is_not_there_is_asked_for(made_up_data: Path):
    with pytest.raises(MissingData, match="holdfast features STREAM"):
        Features(SplitCifar100(made_up_data), made_up_data, cache="nothing-at_all")
    with pytest.raises(ValueError, match="without folders"):
        Features(SplitCifar100(made_up_data), made_up_data, cache="../up")


def test_a_damaged_or_renamed_file_is_refused(stored: Path, tmp_path: Path):
    content = bytearray(stored.read_bytes())
    content[-3] ^= 1
    broken = tmp_path / stored.name
    broken.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        read_features(broken)
    other = tmp_path / "split_cifar100-reduced_resnet18-000000000000.features"
    other.write_bytes(stored.read_bytes())
    with pytest.raises(ValueError, match="not the file that its name says"):
        read_features(other)


def test_a_file_of_another_data_set_is_refused(made_up_data: Path, stored: Path):
    with pytest.raises(ValueError, match="made for another data set"):
        Features(PermutedDigits(n_tasks=1), made_up_data, cache=stored.stem)


def test_a_stream_that_changes_inputs_from_task_to_task_has_no_features_by_row(made_up_data: Path):
    with pytest.raises(ValueError, match="changes inputs from task to task"):
        compute_features(Part(name="permuted_digits"), Part(name="mlp"), data=made_up_data)
