"""What a quick and a deep look say of a data set, on small sets with one thing wrong at a time."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.data.catalogue import (
    CATALOGUE,
    ArrayFile,
    DataSet,
    Finding,
    IdxFile,
    IdxFiles,
    LabelledRecords,
    Layout,
    ListedPictures,
    PicturesByClass,
    UnknownDataSet,
    find,
)


def small(layout: Layout, where: str) -> DataSet:
    """A data set of the catalogue's kind, with a layout small enough to make by hand."""
    return replace(CATALOGUE["mnist"], name="small", where=where, layout=layout)


def broken(findings: list[Finding]) -> list[str]:
    return [f"{finding.file}: {finding.words}" for finding in findings if not finding.ok]


def the_one_broken(findings: list[Finding]) -> str:
    (words,) = broken(findings)
    return words


# IDX files


def idx_labels(labels: list[int]) -> bytes:
    return struct.pack(">II", 2049, len(labels)) + bytes(labels)


@pytest.fixture
def digits(tmp_path: Path) -> DataSet:
    """Two IDX files in tmp_path/digits, one of them compressed."""
    contents = {"a-labels": idx_labels([3, 1, 4]), "b-labels": idx_labels([1, 5, 9, 2])}
    folder = tmp_path / "digits"
    folder.mkdir()
    (folder / "a-labels").write_bytes(contents["a-labels"])
    (folder / "b-labels.gz").write_bytes(gzip.compress(contents["b-labels"]))
    files = [IdxFile(name, len(c), hashlib.sha256(c).hexdigest()) for name, c in contents.items()]
    return small(IdxFiles(tuple(files)), "digits")


def test_idx_files_are_whole_compressed_or_not(digits: DataSet, tmp_path: Path) -> None:
    assert digits.status(tmp_path).state == "present"
    assert [finding.file for finding in digits.verify(tmp_path)] == ["digits/a-labels", "digits/b-labels.gz"]
    assert broken(digits.verify(tmp_path)) == []


def test_a_folder_that_is_not_there_or_empty_is_absent(digits: DataSet, tmp_path: Path) -> None:
    assert digits.status(tmp_path / "elsewhere").state == "absent"
    (tmp_path / "other" / "digits").mkdir(parents=True)
    assert digits.status(tmp_path / "other").state == "absent"
    assert broken(digits.verify(tmp_path / "elsewhere")) == ["digits: not there"]


def test_a_missing_idx_file_is_named(digits: DataSet, tmp_path: Path) -> None:
    (tmp_path / "digits" / "b-labels.gz").unlink()
    status = digits.status(tmp_path)
    assert status.state == "incomplete"
    assert status.missing == ("b-labels is not there, nor b-labels.gz",)
    assert the_one_broken(digits.verify(tmp_path)) == "digits/b-labels: not there, compressed or not"


@pytest.mark.parametrize("compressed", [False, True])
def test_an_idx_file_of_another_length_is_seen_at_a_glance(digits: DataSet, tmp_path: Path, compressed: bool) -> None:
    longer = idx_labels([1, 5, 9, 2, 6])
    path = tmp_path / "digits" / ("b-labels.gz" if compressed else "b-labels")
    path.write_bytes(gzip.compress(longer) if compressed else longer)
    assert digits.status(tmp_path).missing == (f"{path.name} holds 13 bytes, expected 12",)


def test_an_idx_file_with_the_right_structure_and_other_content_is_named(digits: DataSet, tmp_path: Path) -> None:
    other = idx_labels([3, 1, 5])
    (tmp_path / "digits" / "a-labels").write_bytes(other)
    assert digits.status(tmp_path).state == "present"  # a glance cannot see it
    words = the_one_broken(digits.verify(tmp_path))
    assert words.startswith(f"digits/a-labels: wrong content: SHA-256 is {hashlib.sha256(other).hexdigest()}")


def test_a_gzip_file_that_was_cut_off_is_named_and_not_raised(digits: DataSet, tmp_path: Path) -> None:
    path = tmp_path / "digits" / "b-labels.gz"
    path.write_bytes(path.read_bytes()[:-9])
    assert digits.status(tmp_path).state == "incomplete"
    assert the_one_broken(digits.verify(tmp_path)).startswith("digits/b-labels.gz: cannot be read: ")


def test_progress_ends_at_the_sum_of_all_bytes(digits: DataSet, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    digits.verify(tmp_path, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (11 + 12, 11 + 12)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


# Records with two labels


def records(fine: list[int], coarse: int = 0) -> np.ndarray:
    rows = np.zeros((len(fine), 3074), np.uint8)
    rows[:, 0], rows[:, 1] = coarse, fine
    return rows


@pytest.fixture
def photographs(tmp_path: Path) -> DataSet:
    """Two classes: two records each to train, one each to test."""
    folder = tmp_path / "photographs"
    folder.mkdir()
    (folder / "train.bin").write_bytes(records([0, 1, 1, 0]).tobytes())
    (folder / "test.bin").write_bytes(records([1, 0]).tobytes())
    (folder / "fine_label_names.txt").write_text("apple\nbear\n")
    return small(LabelledRecords({"train.bin": 4, "test.bin": 2}, n_classes=2), "photographs")


def test_records_with_equal_classes_are_whole(photographs: DataSet, tmp_path: Path) -> None:
    assert photographs.status(tmp_path).state == "present"
    assert broken(photographs.verify(tmp_path)) == []


def test_records_are_whole_without_the_list_of_names(photographs: DataSet, tmp_path: Path) -> None:
    (tmp_path / "photographs" / "fine_label_names.txt").unlink()
    assert photographs.status(tmp_path).state == "present"
    assert broken(photographs.verify(tmp_path)) == []


def test_a_records_file_that_is_short_is_named_by_both_looks(photographs: DataSet, tmp_path: Path) -> None:
    path = tmp_path / "photographs" / "test.bin"
    path.write_bytes(path.read_bytes()[:-1])
    assert photographs.status(tmp_path).missing == ("test.bin holds 6,147 bytes, expected 6,148",)
    assert the_one_broken(photographs.verify(tmp_path)).startswith("photographs/test.bin: ")
    path.unlink()
    assert photographs.status(tmp_path).missing == ("test.bin is not there",)
    assert the_one_broken(photographs.verify(tmp_path)) == "photographs/test.bin: not there"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (records([0, 0, 0, 1]), "3 records of class 0, expected 2"),
        (records([0, 1, 1, 2]), "fine label 2, expected 0 to 1"),
        (records([0, 0, 1, 1], coarse=20), "coarse label 20, expected 0 to 19"),
    ],
)
def test_wrong_labels_are_named(photographs: DataSet, tmp_path: Path, rows: np.ndarray, words: str) -> None:
    (tmp_path / "photographs" / "train.bin").write_bytes(rows.tobytes())
    assert the_one_broken(photographs.verify(tmp_path)) == f"photographs/train.bin: {words}"


def test_a_list_of_names_that_lacks_one_is_named(photographs: DataSet, tmp_path: Path) -> None:
    (tmp_path / "photographs" / "fine_label_names.txt").write_text("apple\n")
    words = "photographs/fine_label_names.txt: 1 names, expected 2"
    assert the_one_broken(photographs.verify(tmp_path)) == words


# Pictures with lists


def picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, "JPEG")


@pytest.fixture
def birds(tmp_path: Path) -> DataSet:
    """Two classes of two pictures; the first of each is for training."""
    folder = tmp_path / "birds"
    names = ["001.Auk/auk_1.jpg", "001.Auk/auk_2.jpg", "002.Bee_eater/bee_1.jpg", "002.Bee_eater/bee_2.jpg"]
    for seed, name in enumerate(names):
        picture(folder / "images" / name, seed)
    (folder / "images.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(names, 1)))
    (folder / "image_class_labels.txt").write_text("1 1\n2 1\n3 2\n4 2\n")
    (folder / "train_test_split.txt").write_text("1 1\n2 0\n3 1\n4 0\n")
    (folder / "classes.txt").write_text("1 001.Auk\n2 002.Bee_eater\n")
    return small(ListedPictures(n_pictures=4, n_train=2, n_classes=2), "birds")


def test_listed_pictures_are_whole(birds: DataSet, tmp_path: Path) -> None:
    assert birds.status(tmp_path).state == "present"
    assert broken(birds.verify(tmp_path)) == []
    assert birds.verify(tmp_path)[-1] == Finding("birds", True, "4 pictures open")


def test_a_list_that_is_not_there_makes_pictures_incomplete(birds: DataSet, tmp_path: Path) -> None:
    (tmp_path / "birds" / "classes.txt").unlink()
    assert birds.status(tmp_path).missing == ("classes.txt is not there",)
    words = the_one_broken(birds.verify(tmp_path))
    assert words == "birds/classes.txt: cannot be read: No such file or directory"


def test_a_picture_that_is_not_there_is_counted_and_named(birds: DataSet, tmp_path: Path) -> None:
    (tmp_path / "birds" / "images" / "001.Auk" / "auk_2.jpg").unlink()
    assert birds.status(tmp_path).missing == ("images holds 3 pictures, expected 4",)
    assert the_one_broken(birds.verify(tmp_path)) == "birds/images/001.Auk/auk_2.jpg: not there"


def test_a_folder_without_pictures_is_incomplete(birds: DataSet, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "birds" / "images")
    assert birds.status(tmp_path).missing == ("images holds 0 pictures, expected 4",)
    assert len(broken(birds.verify(tmp_path))) == 4


@pytest.mark.parametrize("damage", [lambda content: content[:-200], lambda _: b"<html>sorry</html>"])
def test_a_picture_that_was_cut_off_or_is_none_is_named(
    birds: DataSet, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "birds" / "images" / "002.Bee_eater" / "bee_1.jpg"
    path.write_bytes(damage(path.read_bytes()))
    words = the_one_broken(birds.verify(tmp_path))
    assert words.startswith("birds/images/002.Bee_eater/bee_1.jpg: cannot be decoded: ")


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("image_class_labels.txt", "1 1\n2 1\n3 2\n4 3\n", "image 4 has class 3, not in classes.txt"),
        ("image_class_labels.txt", "1 1\n2 1\n3 2\n", "does not label exactly the images of images.txt"),
        ("image_class_labels.txt", "1 1\n2 2\n3 2\n4 2\n", "image 2 lies in the folder of another class"),
        (
            "train_test_split.txt",
            "1 1\n2 1\n3 1\n4 0\n",
            "3 to train and 1 to test, expected 2 and 2",
        ),
        ("train_test_split.txt", "1 1\n2 0\n3 1\nfour 0\n", "cannot be read: line 4 is 'four 0', expected"),
        ("train_test_split.txt", "1 1\n1 0\n3 1\n4 0\n", "cannot be read: line 2 is '1 0', expected"),
        ("classes.txt", "1 001.Auk\n2 002.Bee_eater\n3 003.Crane\n", "3 classes, expected 2"),
    ],
)
def test_a_list_that_is_wrong_is_named(birds: DataSet, tmp_path: Path, file: str, content: str, words: str) -> None:
    (tmp_path / "birds" / file).write_text(content)
    assert the_one_broken(birds.verify(tmp_path)).startswith(f"birds/{file}: {words}")


def test_fewer_pictures_than_published_are_noticed_even_if_the_lists_agree(birds: DataSet, tmp_path: Path) -> None:
    published = replace(birds, layout=ListedPictures(n_pictures=5, n_train=3, n_classes=2))
    assert broken(published.verify(tmp_path)) == [
        "birds/images.txt: 4 pictures listed, expected 5",
        "birds/train_test_split.txt: 2 to train and 2 to test, expected 3 and 2",
    ]


# Pictures by class


@pytest.fixture
def animals(tmp_path: Path) -> DataSet:
    folder = tmp_path / "animals"
    for seed, name in enumerate(["antelope/a1.jpg", "blue+whale/b1.jpg", "blue+whale/b2.jpg"]):
        picture(folder / "JPEGImages" / name, seed)
    (folder / "classes.txt").write_text("    1\tantelope\n    2\tblue+whale\n")
    return small(PicturesByClass(n_pictures=3, n_classes=2), "animals")


def test_pictures_by_class_are_whole(animals: DataSet, tmp_path: Path) -> None:
    assert animals.status(tmp_path).state == "present"
    assert broken(animals.verify(tmp_path)) == []


def test_a_class_without_pictures_is_named(animals: DataSet, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "animals" / "JPEGImages" / "antelope")
    assert animals.status(tmp_path).missing == ("JPEGImages holds 2 pictures, expected 3",)
    assert broken(animals.verify(tmp_path)) == [
        "animals/JPEGImages: 2 pictures, expected 3",
        "animals/JPEGImages/antelope: no pictures of this class",
    ]


def test_a_folder_that_is_no_class_is_named(animals: DataSet, tmp_path: Path) -> None:
    images = tmp_path / "animals" / "JPEGImages"
    (images / "antelope").rename(images / "unicorn")
    assert broken(animals.verify(tmp_path)) == [
        "animals/JPEGImages/antelope: no pictures of this class",
        "animals/JPEGImages/unicorn: not a class of classes.txt",
    ]


def test_pictures_by_class_without_the_list_are_incomplete(animals: DataSet, tmp_path: Path) -> None:
    (tmp_path / "animals" / "classes.txt").unlink()
    assert animals.status(tmp_path).missing == ("classes.txt is not there",)
    assert the_one_broken(animals.verify(tmp_path)).startswith("animals/classes.txt: cannot be read")


# Arrays


@pytest.fixture
def features(tmp_path: Path) -> DataSet:
    path = tmp_path / "features.npz"
    np.savez(path, features=np.zeros((3, 2), np.float16), labels=np.zeros(3, np.uint8))
    content = path.read_bytes()
    arrays = {"features": ("<f2", (3, 2)), "labels": ("|u1", (3,))}
    layout = ArrayFile(len(content), hashlib.sha256(content).hexdigest(), arrays)
    return small(layout, "features.npz")


def test_a_file_of_arrays_is_whole(features: DataSet, tmp_path: Path) -> None:
    assert features.status(tmp_path).state == "present"
    assert broken(features.verify(tmp_path)) == []


def test_a_file_with_other_arrays_is_named_with_what_they_are(features: DataSet, tmp_path: Path) -> None:
    path = tmp_path / "features.npz"
    np.savez(path, features=np.zeros((4, 2), np.float16))
    assert features.status(tmp_path).state == "incomplete"
    sum_is_wrong, *on_arrays = broken(features.verify(tmp_path))
    assert sum_is_wrong.startswith(f"features.npz: SHA-256 is {hashlib.sha256(path.read_bytes()).hexdigest()}")
    assert on_arrays == [
        "features.npz: array features is ('<f2', (4, 2)), expected ('<f2', (3, 2))",
        "features.npz: array labels is not there, expected ('|u1', (3,))",
    ]


def one_array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    "damage",
    [lambda _: b"", lambda content: content[:40], lambda content: content[:-30], lambda _: one_array()],
)
def test_a_file_of_arrays_that_cannot_be_read_is_named_and_not_raised(
    features: DataSet, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "features.npz"
    path.write_bytes(damage(path.read_bytes()))
    assert features.status(tmp_path).state == "incomplete"
    words = broken(features.verify(tmp_path))
    assert any(line.startswith("features.npz: cannot be read: ") for line in words)


# The catalogue


def test_every_data_set_says_what_the_streams_need_to_know() -> None:
    assert list(CATALOGUE) == ["mnist", "cifar100", "cub", "awa2", "awa1_features"]
    for data_set in CATALOGUE.values():
        assert all([data_set.title, data_set.where, data_set.licence, data_set.streams, data_set.by_hand])


def test_every_archive_comes_over_https_with_a_checksum() -> None:
    for archive in (archive for data_set in CATALOGUE.values() for archive in data_set.archives):
        assert archive.urls
        assert all(url.startswith("https://") for url in archive.urls)
        assert all(url.endswith(f"/{archive.file}") for url in archive.urls)
        kind, digits = (archive.checksum or "").split(":")
        assert len(bytes.fromhex(digits)) == hashlib.new(kind).digest_size


def test_a_name_close_to_a_known_one_is_suggested() -> None:
    assert find("mnist") is CATALOGUE["mnist"]
    with pytest.raises(UnknownDataSet, match="no 'minst' among the data sets: did you mean 'mnist'"):
        find("minst")
    with pytest.raises(UnknownDataSet, match="there are mnist, cifar100, cub, awa2, awa1_features"):
        find("xyz")


# The real thing


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["mnist", "cifar100", "cub", "awa1_features"])
def test_the_real_data_set_is_whole(real_data: Path, name: str) -> None:
    assert CATALOGUE[name].status(real_data).state == "present"
    findings = CATALOGUE[name].verify(real_data)
    assert findings
    assert broken(findings) == []


@pytest.mark.real_data
def test_one_flipped_byte_of_mnist_is_found(real_data: Path, tmp_path: Path) -> None:
    shutil.copytree(real_data / "mnist", tmp_path / "mnist")
    name = "t10k-labels-idx1-ubyte"
    archive = next((tmp_path / "mnist").glob(f"{name}*"))
    packed = archive.suffix == ".gz"
    content = bytearray(gzip.decompress(archive.read_bytes()) if packed else archive.read_bytes())
    content[5000] ^= 1
    archive.write_bytes(gzip.compress(content) if packed else content)
    assert CATALOGUE["mnist"].status(tmp_path).state == "present"
    assert the_one_broken(CATALOGUE["mnist"].verify(tmp_path)).startswith(f"mnist/{archive.name}: wrong content")
