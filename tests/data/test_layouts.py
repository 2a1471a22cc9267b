import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data.layouts import read_awa1_features, read_awa2, read_cifar100, read_cub, read_idx
from holdfast.data.places import BrokenData, MissingData
from tests.support import data_files


def pixels(*shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("pack", [lambda content: content, gzip.compress], ids=["plain", "gz"])
@settings(deadline=None, max_examples=20)
@given(shape=st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 4)))
def test_an_idx_file_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, pack: Callable[[bytes], bytes], shape: tuple[int, int, int]
):
    root = tmp_path_factory.mktemp("idx")
    (root / ("x" if pack is not gzip.compress else "x.gz")).write_bytes(pack(data_files.idx(pixels(*shape))))
    x = read_idx(root, "x", item_shape=shape[1:])
    np.testing.assert_array_equal(x, pixels(*shape))
    assert x.flags.writeable


@pytest.mark.parametrize("name", ["x", "x.gz"])
@pytest.mark.parametrize("length", [0, 3, 4, 9, 15, 16, 17, 31])
def test_a_truncated_idx_file_is_an_error_wherever_it_ends(tmp_path: Path, name: str, length: int):
    content = data_files.idx(pixels(4, 2, 2))[:length]
    (tmp_path / name).write_bytes(gzip.compress(content) if name == "x.gz" else content)
    with pytest.raises(BrokenData, match=f"{name}: found .*, expected .*: delete the file and run"):
        read_idx(tmp_path, "x", item_shape=(2, 2))


@pytest.mark.parametrize("damage", [lambda c: c[:-9], lambda c: c[:12] + b"\xff" * 9 + c[21:], lambda _: b"no gzip"])
def test_a_damaged_gzip_file_is_an_error_that_names_it(tmp_path: Path, damage: Callable[[bytes], bytes]):
    (tmp_path / "x.gz").write_bytes(damage(gzip.compress(data_files.idx(pixels(40, 2, 2)))))
    with pytest.raises(BrokenData, match=r"x\.gz: found damaged data .*, expected a whole gzip file"):
        read_idx(tmp_path, "x", item_shape=(2, 2))


def test_a_wrong_magic_number_is_an_error(tmp_path: Path):
    (tmp_path / "labels").write_bytes(data_files.idx(pixels(4, 2, 2)))
    with pytest.raises(BrokenData, match="found the first bytes 00000803, expected the IDX mark 00000801"):
        read_idx(tmp_path, "labels")


def test_images_of_another_size_are_an_error(tmp_path: Path):
    (tmp_path / "x").write_bytes(data_files.idx(pixels(4, 2, 3)))
    with pytest.raises(BrokenData, match=r"found items of shape \(2, 3\), expected \(2, 2\)"):
        read_idx(tmp_path, "x", item_shape=(2, 2))


def test_more_data_than_the_header_says_is_an_error(tmp_path: Path):
    (tmp_path / "y").write_bytes(data_files.idx(pixels(4)) + b"?")
    with pytest.raises(BrokenData, match="found 5 bytes of data, expected 4 as its header says"):
        read_idx(tmp_path, "y")


def test_a_missing_idx_file_is_one_sentence_that_says_what_to_do(tmp_path: Path):
    with pytest.raises(MissingData, match=r"no mnist/y\.gz in .*: run 'holdfast data download mnist'"):
        read_idx(tmp_path, "mnist/y")


def test_cifar_records_are_coarse_label_fine_label_and_pixels_channel_by_channel(tmp_path: Path):
    records = pixels(5, 3074) % 100
    (tmp_path / "train.bin").write_bytes(records.tobytes())
    x, y = read_cifar100(tmp_path, "train.bin")
    assert x.shape == (5, 3, 32, 32)
    assert y.tolist() == records[:, 1].tolist()
    assert x[3, 2, 1, 5] == records[3, 2 + 2 * 1024 + 32 + 5]


def test_cifar_images_are_mapped_and_not_loaded(tmp_path: Path):
    (tmp_path / "train.bin").write_bytes(bytes(3074 * 2))
    x, _ = read_cifar100(tmp_path, "train.bin")
    assert not x.flags.owndata
    assert not x.flags.writeable


@pytest.mark.parametrize("size", [0, 3073, 3075])
def test_a_truncated_cifar_file_is_an_error(tmp_path: Path, size: int):
    (tmp_path / "train.bin").write_bytes(bytes(size))
    with pytest.raises(BrokenData, match=r"train\.bin: found [\d,]+ bytes, expected a multiple of 3,074"):
        read_cifar100(tmp_path, "train.bin")


def test_a_cifar_label_out_of_range_is_an_error(tmp_path: Path):
    (tmp_path / "train.bin").write_bytes(bytes([0, 100]) + bytes(3072))
    with pytest.raises(BrokenData, match="found fine label 100, expected 0 to 99"):
        read_cifar100(tmp_path, "train.bin")


def test_a_missing_cifar_file_is_one_sentence_that_says_what_to_do(tmp_path: Path):
    with pytest.raises(MissingData, match=r"no train\.bin in .*: run 'holdfast data download cifar100'"):
        read_cifar100(tmp_path, "train.bin")


@pytest.fixture
def cub(tmp_path: Path) -> Path:
    """The lists of a CUB of three photos; no photos."""
    folder = tmp_path / "CUB_200_2011"
    data_files.write_list(folder / "images.txt", ["a/1.jpg", "a/2.jpg", "b/3.jpg"])
    data_files.write_list(folder / "image_class_labels.txt", ["1", "1", "200"])
    data_files.write_list(folder / "train_test_split.txt", ["1", "0", "1"])
    data_files.write_list(folder / "classes.txt", [f"bird {c}" for c in range(200)])
    return tmp_path


def test_the_lists_of_cub_are_joined_by_number_and_not_by_line(cub: Path):
    (cub / "CUB_200_2011/image_class_labels.txt").write_text("3 200\r\n1 1\r\n\r\n2 1\r\n")
    photos = read_cub(cub)
    assert photos.files == [f"CUB_200_2011/images/{name}" for name in ("a/1.jpg", "a/2.jpg", "b/3.jpg")]
    assert photos.y.tolist() == [0, 0, 199]
    assert photos.is_train.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("images", "1 a/1.jpg\n2\n", r"images\.txt line 2: found '2', expected a number and a value"),
        ("images", "one a/1.jpg\n", r"images\.txt line 1: found 'one a/1.jpg'"),
        ("images", "1 a/1.jpg\n1 a/2.jpg\n", r"images\.txt line 2: found number 1 again"),
        ("images", "\n", r"images\.txt: found an empty list"),
        ("images", "1 a\n2 b\n", r"image_class_labels\.txt: found no match for image 3"),
        ("image_class_labels", "1 1\n2 1\n3 201\n", "found class '201' for image 3, expected 1 to 200"),
        ("image_class_labels", "1 1\n2 1\n3 -4\n", "found class '-4' for image 3, expected 1 to 200"),
        (
            "image_class_labels",
            "1 1\n2 1\n",
            "found no match for image 3, expected the numbers of images.txt",
        ),
        ("train_test_split", "1 1\n2 2\n3 0\n", "found '2' for image 2, expected 1 "),
        ("classes", "1 bird\n", r"classes\.txt: found 1 classes, expected those from 1 to 200"),
    ],
)
def test_a_malformed_list_of_cub_is_an_error_that_says_where(cub: Path, file: str, content: str, message: str):
    (cub / f"CUB_200_2011/{file}.txt").write_text(content)
    with pytest.raises(BrokenData, match=message):
        read_cub(cub)


def test_a_list_that_is_no_text_is_an_error(cub: Path):
    (cub / "CUB_200_2011/images.txt").write_bytes(b"1 \xff\xfe\n")
    with pytest.raises(BrokenData, match=r"images\.txt: found damaged text"):
        read_cub(cub)


def test_a_missing_list_is_one_sentence_that_says_what_to_do(cub: Path):
    (cub / "CUB_200_2011/classes.txt").unlink()
    with pytest.raises(MissingData, match=r"no CUB_200_2011/classes\.txt in .*: run 'holdfast data download cub'"):
        read_cub(cub)


def test_awa2_is_split_by_file_name_whatever_else_is_there(tmp_path: Path):
    data_files.write_awa2(tmp_path, n=20)
    photos = read_awa2(tmp_path)
    assert np.bincount(photos.y[photos.is_train]).tolist() == [14] * 50
    assert np.bincount(photos.y[~photos.is_train]).tolist() == [3] * 50
    assert len(set(photos.files)) == len(photos.files)
    assert all(f"/animal+{y}/" in file for file, y in zip(photos.files, photos.y, strict=True))

    for path in (tmp_path / "Animals_with_Attributes2/JPEGImages/animal+0").glob("*.jpg"):
        path.unlink()
        path.touch()
    (tmp_path / "Animals_with_Attributes2/JPEGImages/animal+0/notes.txt").touch()
    again = read_awa2(tmp_path)
    assert again.files == photos.files
    assert again.is_train.tolist() == photos.is_train.tolist()


def test_an_animal_without_photos_is_missing_data(tmp_path: Path):
    data_files.write_awa2(tmp_path, n=0)
    with pytest.raises(MissingData, match=r"no Animals_with_Attributes2/JPEGImages/animal\+0/\*\.jpg in"):
        read_awa2(tmp_path)


def test_a_missing_awa2_is_one_sentence_that_says_what_to_do(tmp_path: Path):
    with pytest.raises(MissingData, match="run 'holdfast data download awa2'"):
        read_awa2(tmp_path)


def test_awa1_features_come_back_as_they_were_written(tmp_path: Path):
    data_files.write_awa1_features(tmp_path, n=3)
    vectors = read_awa1_features(tmp_path)
    assert vectors.x.shape == (150, 512)
    assert vectors.x.dtype == np.float16
    assert vectors.y.tolist() == [i // 3 for i in range(150)]
    assert vectors.is_train.sum() == 100


GOOD: dict[str, Any] = {
    "features": np.zeros((4, 512), np.float16),
    "labels": np.arange(4, dtype=np.uint8),
    "is_train": np.ones(4, np.bool_),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"features": np.zeros((3, 512), np.float16)},
            r"found features float16\(3, 512\), labels uint8\(4,\)",
        ),
        ({"features": np.zeros((4, 512))}, r"found features float64\(4, 512\)"),
        ({"features": np.zeros(4, np.float16)}, r"found features float16\(4,\)"),
        ({"labels": np.zeros(4)}, r"labels float64\(4,\)"),
        ({"labels": np.full(4, 50, np.uint8)}, "with a label out of range, expected labels 0 to 49"),
        ({"is_train": np.ones(4, np.uint8)}, r"is_train uint8\(4,\)"),
        ({"is_train": np.ones(5, np.bool_)}, r"is_train bool\(5,\)"),
        ({"labels": np.array([None] * 4)}, "found labels.npy of objects, expected an array of numbers"),
    ],
)
def test_awa1_features_of_another_form_are_an_error(tmp_path: Path, change: dict[str, Any], message: str):
    np.savez(tmp_path / "awa1_features.npz", **{**GOOD, **change})
    with pytest.raises(BrokenData, match=message):
        read_awa1_features(tmp_path)


def test_awa1_features_without_one_of_the_arrays_are_an_error(tmp_path: Path):
    np.savez(tmp_path / "awa1_features.npz", features=GOOD["features"], labels=GOOD["labels"])
    with pytest.raises(BrokenData, match=r"found no such array \(is_train.*expected features, labels and is_train"):
        read_awa1_features(tmp_path)


@pytest.mark.parametrize("keep", [0, 10, 500, -30])
def test_a_damaged_npz_archive_is_an_error(tmp_path: Path, keep: int):
    data_files.write_awa1_features(tmp_path, n=3)
    path = tmp_path / "awa1_features.npz"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BrokenData, match=r"awa1_features\.npz: found damaged data"):
        read_awa1_features(tmp_path)


def test_a_single_array_is_no_npz_archive(tmp_path: Path):
    with (tmp_path / "awa1_features.npz").open("wb") as file:
        np.save(file, GOOD["features"])
    with pytest.raises(BrokenData, match=r"awa1_features\.npz: found damaged data .*, expected an npz archive"):
        read_awa1_features(tmp_path)


def test_missing_awa1_features_are_one_sentence_that_says_what_to_do(tmp_path: Path):
    with pytest.raises(MissingData, match="no publisher offers it, so copy it there"):
        read_awa1_features(tmp_path)
