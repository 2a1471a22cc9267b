from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data.layouts import read_awa1_features, read_awa2
from holdfast.data.places import BrokenData
from holdfast.streams._base import Stream
from holdfast.streams.split_awa import SplitAwa
from tests.support import data_files


@pytest.fixture(params=["images", "features"])
def build(request: pytest.FixtureRequest, made_up_data: Path) -> Callable[..., Stream]:
    return partial(SplitAwa, made_up_data, source=request.param, size=6)


def animals(stream: Stream) -> list[list[int]]:
    return [[c % 50 for c in task.classes] for task in stream]


@pytest.mark.parametrize("seed", range(5))
def test_no_training_sample_comes_twice(build: Callable[..., Stream], seed: int):
    rows = torch.cat([task.train.rows for task in build(seed=seed, tasks="all")]).tolist()
    assert len(set(rows)) == len(rows)


def test_the_training_samples_of_an_animal_are_shared_out_equally_in_order(build: Callable[..., Stream]):
    stream = build()
    n_shares = Counter(animal for group in animals(stream) for animal in group)
    assert max(n_shares.values()) > 1
    for animal, n in n_shares.items():
        shares = [
            task.train.rows[task.train.y == 50 * task.id + animal].tolist()
            for task in stream
            if 50 * task.id + animal in task.classes
        ]
        assert len(shares) == n
        assert len({len(share) for share in shares}) == 1
        joined = [row for share in shares for row in share]
        assert joined == sorted(joined)


def test_the_shares_use_up_all_but_what_cannot_be_divided(made_up_data: Path):
    stream = SplitAwa(made_up_data, source="features")
    n_shares = Counter(animal for group in animals(stream) for animal in group)
    used = Counter(y % 50 for task in stream for y in task.train.y.tolist())
    assert all(used[animal] == 20 // n * n for animal, n in n_shares.items())


def test_animals_come_back_and_tuning_has_the_first_15(build: Callable[..., Stream]):
    groups = animals(build(tasks="all"))
    assert all(len(set(group)) == 5 for group in groups)
    assert {animal for group in groups[:3] for animal in group} <= set(range(15))
    assert {animal for group in groups[3:] for animal in group} <= set(range(15, 50))
    assert len({animal for group in groups[3:] for animal in group}) > 20


def test_an_animal_has_a_unit_of_its_own_in_each_task(build: Callable[..., Stream]):
    stream = build()
    assert stream.n_classes == 850
    units = [c for task in stream for c in task.classes]
    assert len(set(units)) == 85
    assert all(c // 50 == task.id for task in stream for c in task.classes)
    assert build(n_tasks=4).n_classes == 200


def test_a_task_is_tested_on_all_test_samples_of_its_animals(made_up_data: Path):
    vectors = read_awa1_features(made_up_data)
    for task in SplitAwa(made_up_data, source="features"):
        wanted = np.isin(vectors.y, [c % 50 for c in task.classes]) & ~vectors.is_train
        assert sorted(task.test.rows.tolist()) == wanted.nonzero()[0].tolist()
        assert (50 * task.id + vectors.y[task.test.rows.numpy()]).tolist() == task.test.y.tolist()


def test_photos_keep_their_label_and_their_side_of_the_split(made_up_data: Path):
    photos = read_awa2(made_up_data)
    for task in SplitAwa(made_up_data, size=6):
        for samples, is_train in ((task.train, True), (task.test, False)):
            rows = samples.rows.numpy()
            assert (photos.is_train[rows] == is_train).all()
            assert (50 * task.id + photos.y[rows]).tolist() == samples.y.tolist()


def test_accuracy_is_a_mean_over_classes(build: Callable[..., Stream]):
    assert build(n_tasks=1).per_class_accuracy


def test_features_stay_half_precision_and_unscaled(made_up_data: Path):
    stream = SplitAwa(made_up_data, source="features", n_tasks=1)
    assert stream[0].train[:1].x.dtype == torch.float16
    assert (stream.input_shape, stream.scale, stream.mean) == ((512,), 1.0, 0.0)


def test_an_unknown_source_is_an_error(made_up_data: Path):
    with pytest.raises(ValueError, match="source='photos': expected 'images' or 'features'"):
        SplitAwa(made_up_data, source="photos")  # type: ignore[arg-type]


def test_fewer_training_samples_than_tasks_are_an_error(tmp_path: Path):
    data_files.write_awa1_features(tmp_path, n=3)
    with pytest.raises(BrokenData, match=r"2 training samples of class \d+ for \d+ tasks: the data is not compl"):
        SplitAwa(tmp_path, source="features")


@pytest.mark.real_data
@pytest.mark.parametrize("seed", [1234, 1235])
def test_real_features_have_about_the_counts_of_the_protocol(real_data: Path, seed: int):
    stream = SplitAwa(real_data, source="features", seed=seed)
    assert len(stream) == 17
    rows = torch.cat([task.train.rows for task in stream]).tolist()
    assert len(set(rows)) == len(rows)
    # The protocol counts 15.7k to 18.1k images of AwA2 a run; these are of the first edition, 80 % training.
    assert 13_000 < len(rows) < 18_500
    assert all(300 < len(task.train) < 2_500 for task in stream)
