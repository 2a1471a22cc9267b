"""The converter of AwA's published descriptors, on a small archive made here; the original is not available."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast.data.awa1 import _split, convert_awa1
from holdfast.data.catalogue import CATALOGUE
from holdfast.data.layouts import read_awa1_features
from holdfast.data.places import BrokenData, MissingData
from tests.support import data_files
from tests.support.places import SHARED

CLASSES = ("antelope", "killer+whale", "bat")
N_PICTURES = {"antelope": 21, "killer+whale": 12, "bat": 7}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return data_files.write_descriptors(tmp_path / "Animals_with_Attributes")


def read(folder: Path, descriptor: str) -> np.ndarray:
    files = [
        folder / "Features" / descriptor / name / f"{name}_{i + 1:04}.txt"
        for name in CLASSES
        for i in range(N_PICTURES[name])
    ]
    return np.array([[float(n) for n in path.read_text().replace(",", " ").split()] for path in files])


def test_the_features_are_those_of_the_description_step_by_step(archive, tmp_path):
    converted = convert_awa1(archive, tmp_path / "awa1_features.npz")
    vectors = read_awa1_features(tmp_path)
    train = vectors.is_train
    blocks = []
    for descriptor in ("phog-hist", "lss-hist", "sift-hist", "surf-hist", "rgsift-hist"):
        block = read(archive, descriptor)
        if descriptor != "phog-hist":
            block /= block.sum(axis=1, keepdims=True)
        block = np.sqrt(block)
        block -= block[train].mean(axis=0)
        blocks.append(block / np.sqrt((block[train] ** 2).sum() / train.sum()))
    joined = np.hstack(blocks)
    _, singular, directions = np.linalg.svd(joined[train], full_matrices=False)
    expected = joined @ directions.T
    n = min(train.sum(), joined.shape[1])
    expected *= np.sqrt(n * train.sum() / (singular[:n] ** 2).sum())
    assert vectors.x.shape == (sum(N_PICTURES.values()), n) == (converted.n_pictures, converted.n_features)
    assert converted.n_numbers == joined.shape[1] == 40
    # The sign of a component does not matter. The last ones have next to no energy, and no direction of their own.
    firm = singular > 1e-3 * singular[0]
    np.testing.assert_allclose(
        np.abs(vectors.x)[:, firm[:n]], np.abs(expected)[:, :n][:, firm[:n]], rtol=2e-3, atol=2e-3
    )
    assert np.square(vectors.x[train].astype(float)).sum(axis=1).mean() == pytest.approx(n, rel=1e-3)
    np.testing.assert_allclose(vectors.x[train].astype(float).mean(axis=0), 0, atol=1e-3)


def test_only_the_strongest_components_are_kept(archive, tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.data.awa1.N_FEATURES", 4)
    converted = convert_awa1(archive, tmp_path / "awa1_features.npz")
    vectors = read_awa1_features(tmp_path)
    assert vectors.x.shape[1] == converted.n_features == 4
    deviations = vectors.x[vectors.is_train].astype(float).std(axis=0)
    assert (np.diff(deviations) < 0).all()
    assert 0 < converted.energy < 1


def test_a_fifth_of_each_class_is_for_testing_and_the_order_is_that_of_the_files(archive, tmp_path):
    convert_awa1(archive, tmp_path / "awa1_features.npz")
    vectors = read_awa1_features(tmp_path)
    assert vectors.y.tolist() == [c for c, name in enumerate(CLASSES) for _ in range(N_PICTURES[name])]
    assert [int((~vectors.is_train & (vectors.y == c)).sum()) for c in range(3)] == [4, 2, 1]
    with np.load(tmp_path / "awa1_features.npz") as arrays:
        assert arrays["class_names"].tolist() == list(CLASSES)
        assert arrays["class_attributes"].tolist() == [[0, 1], [1, 1], [0, 0]]


def test_testing_pictures_do_not_shape_the_features(archive, tmp_path):
    convert_awa1(archive, tmp_path / "one" / "awa1_features.npz")
    before = read_awa1_features(tmp_path / "one")
    held_out = np.flatnonzero(~before.is_train[: N_PICTURES["antelope"]])[0]
    (archive / "Features" / "sift-hist" / "antelope" / f"antelope_{held_out + 1:04}.txt").write_text("9 0 0 0 0 0 0 1")
    convert_awa1(archive, tmp_path / "two" / "awa1_features.npz")
    after = read_awa1_features(tmp_path / "two")
    others = np.arange(len(before.y)) != held_out
    np.testing.assert_array_equal(before.x[others], after.x[others])
    assert not np.array_equal(before.x[held_out], after.x[held_out])


@pytest.mark.real_data
def test_the_split_is_that_of_the_stored_file():
    path = SHARED / "data" / "awa1_features.npz"
    if not path.exists():
        pytest.skip(f"no {path}")
    with np.load(path) as arrays:
        np.testing.assert_array_equal(_split(arrays["labels"], 50), arrays["is_train"])
        train = arrays["features"][arrays["is_train"]].astype(float)
    assert np.square(train).sum(axis=1).mean() == pytest.approx(512, rel=1e-4)
    assert (np.diff(train.std(axis=0)) < 1e-3).all()


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda f: (f / "classes.txt").unlink(), MissingData, "AwA-base"),
        (lambda f: (f / "classes.txt").write_text("1\t../../etc\n"), BrokenData, "line 1"),
        (lambda f: (f / "classes.txt").write_text("2\tbat\n"), BrokenData, "expected 1 and the name"),
        (lambda f: (f / "predicate-matrix-binary.txt").write_text("0 1\n1 2\n0 0\n"), BrokenData, "zeros and ones"),
        (lambda f: (f / "Features/surf-hist/bat/bat_0003.txt").unlink(), BrokenData, "the same pictures"),
        (lambda f: (f / "Features/surf-hist/bat/bat_0003.txt").write_text("1 2"), BrokenData, "2 numbers, expected 7"),
        (lambda f: (f / "Features/surf-hist/bat/bat_0003.txt").write_text("1 x"), BrokenData, "expected numbers"),
        (lambda f: (f / "Features/surf-hist/bat/bat_0003.txt").write_text("-1 " * 7), BrokenData, "below zero"),
        (lambda f: (f / "Features/surf-hist/bat/bat_0003.txt").write_text("nan " * 7), BrokenData, "infinite"),
        (lambda f: (f / "Features/surf-hist").rename(f / "surf"), MissingData, "AwA-features-surf.tar.bz2"),
    ],
)
def test_an_archive_that_is_not_whole_is_a_sentence_and_leaves_no_file(archive, tmp_path, spoil, error, message):
    spoil(archive)
    with pytest.raises(error, match=message):
        convert_awa1(archive, tmp_path / "awa1_features.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["Animals_with_Attributes"]


def test_what_was_converted_here_is_whole_and_is_not_called_the_known_file(archive, tmp_path):
    convert_awa1(archive, tmp_path / "awa1_features.npz")
    data_set = CATALOGUE["awa1_features"]
    assert data_set.status(tmp_path).state == "present"
    (finding,) = (each for each in data_set.verify(tmp_path, lambda *_: None) if "converted" in each.words)
    assert (finding.ok, "not the file behind the stored results" in finding.words) == (True, True)
