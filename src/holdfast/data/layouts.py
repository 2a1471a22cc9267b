"""Readers of the files as their publishers lay them out; nothing is unpickled."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.data.places import MissingData, broken, missing
from holdfast.data.untrusted import MAX_TEXT, Unsafe, arrays_of, check_name, read_at_most, unpacked_at_most

UBYTE = 0x08  # IDX's code for unsigned bytes
CIFAR_PIXELS = 3 * 32 * 32  # channel by channel
N_CIFAR10, N_CIFAR, N_CUB, N_AWA = 10, 100, 200, 50  # classes
MAX_ROWS = 60_000  # of a file of MNIST or CIFAR-100: none that is published has more
MAX_FEATURES = 64 * 2**20  # bytes of awa1_features.npz, packed or not; it has 31 million
MAX_DIGITS = 9  # of a number in a list

Rows = tuple[NDArray[np.uint8], NDArray[np.int64]]  # inputs (n, …) and labels (n,)


@dataclass(frozen=True, eq=False)
class Photos:
    """Photos of a data set: n files below the data root, labels from 0 (n,), and which are for training (n,)."""

    files: list[str]
    y: NDArray[np.int64]
    is_train: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Vectors:
    """Feature vectors of a data set (n, d), labels from 0 (n,), and which are for training (n,)."""

    x: NDArray[np.float16]
    y: NDArray[np.int64]
    is_train: NDArray[np.bool_]


def read_idx(root: Path, file: str, *, item_shape: tuple[int, ...] = ()) -> NDArray[np.uint8]:
    """Read an MNIST file (n, *item_shape) in the IDX format: `file` below `root`, or the same with .gz."""
    path = next((p for p in (root / file, root / f"{file}.gz") if p.is_file()), None)
    if path is None:
        raise missing("mnist", root, f"{file}.gz")
    content = _unpacked(path, 4 + 4 * (1 + len(item_shape)) + MAX_ROWS * int(np.prod(item_shape, dtype=object)))

    n_dimensions = 1 + len(item_shape)
    magic = bytes([0, 0, UBYTE, n_dimensions])
    if content[:4] != magic:
        raise broken("mnist", path, f"the first bytes {content[:4].hex()}", f"the IDX mark {magic.hex()}")
    header, body = content[4 : 4 + 4 * n_dimensions], content[4 + 4 * n_dimensions :]
    if len(header) < 4 * n_dimensions:
        raise broken("mnist", path, f"{len(content)} bytes", f"a header of {4 + 4 * n_dimensions}")
    shape = tuple(np.frombuffer(header, ">u4").tolist())
    if shape[1:] != item_shape:
        raise broken("mnist", path, f"items of shape {shape[1:]}", f"{item_shape}")
    n_bytes = int(np.prod(shape, dtype=object))
    if len(body) != n_bytes:
        raise broken("mnist", path, f"{len(body):,} bytes of data", f"{n_bytes:,} as its header says")
    return np.frombuffer(body, np.uint8).reshape(shape).copy()  # frombuffer's own array is read-only


def _unpacked(path: Path, at_most: int) -> bytes:
    try:
        with _safely("mnist", path):
            return unpacked_at_most(path, at_most) if path.suffix == ".gz" else read_at_most(path, at_most)
    except (gzip.BadGzipFile, EOFError, zlib.error) as reason:
        raise broken("mnist", path, f"damaged data ({reason})", "a whole gzip file") from reason


@contextmanager
def _safely(name: str, path: Path) -> Iterator[None]:
    """Context manager: a refusal inside becomes the error of data set `name`, of which `path` is read."""
    try:
        yield
    except Unsafe as reason:
        raise broken(name, path, reason.found, reason.expected) from reason


def read_cifar100(root: Path, file: str) -> Rows:
    """Read images (n, 3, 32, 32), mapped and not loaded, and fine labels (n,) of `file` below `root`."""
    return _read_cifar("cifar100", root, file, labels=("coarse label", "fine label"), n_classes=N_CIFAR)


def read_cifar10(root: Path, file: str) -> Rows:
    """Read images (n, 3, 32, 32), mapped and not loaded, and labels (n,) of `file` below `root`."""
    return _read_cifar("cifar10", root, file, labels=("label",), n_classes=N_CIFAR10)


def _read_cifar(name: str, root: Path, file: str, *, labels: tuple[str, ...], n_classes: int) -> Rows:
    """Read records of labels, a byte each, of which the last is taken, and the pixels channel by channel."""
    path, record = root / file, len(labels) + CIFAR_PIXELS
    if not path.is_file():
        raise missing(name, root, file)
    size = path.stat().st_size
    if size == 0 or size % record:
        raise broken(name, path, f"{size:,} bytes", f"a multiple of {record:,}")
    if size > MAX_ROWS * record:
        raise broken(name, path, f"{size:,} bytes", f"at most {MAX_ROWS:,} records of {record:,}")
    records = np.asarray(np.memmap(path, np.uint8, "r")).reshape(-1, record)
    y = records[:, len(labels) - 1].astype(np.int64)
    if y.max() >= n_classes:
        raise broken(name, path, f"{labels[-1]} {y.max()}", f"0 to {n_classes - 1}")
    return records[:, len(labels) :].reshape(-1, 3, 32, 32), y


def read_cub(root: Path) -> Photos:
    """Read the photos of CUB-200-2011 with the official split, in the order of images.txt's numbers."""
    images, labels, split, classes = (
        _numbered_lines("cub", root, f"CUB_200_2011/{file}.txt")
        for file in ("images", "image_class_labels", "train_test_split", "classes")
    )
    folder = root / "CUB_200_2011"
    for file, lines in (("image_class_labels.txt", labels), ("train_test_split.txt", split)):
        if odd := sorted(lines.keys() ^ images.keys()):
            raise broken("cub", folder / file, f"no match for image {odd[0]}", "the numbers of images.txt")
    _check_classes("cub", folder / "classes.txt", classes, N_CUB)
    for number in sorted(images):
        with _safely("cub", folder / "images.txt"):
            check_name(images[number])
        if not (_is_number(labels[number]) and 1 <= int(labels[number]) <= N_CUB):
            found = f"class {labels[number]!r} for image {number}"
            raise broken("cub", folder / "image_class_labels.txt", found, f"1 to {N_CUB}")
        if split[number] not in ("0", "1"):
            found = f"{split[number]!r} for image {number}"
            raise broken("cub", folder / "train_test_split.txt", found, "1 (train) or 0 (test)")
    return Photos(
        [f"CUB_200_2011/images/{images[number]}" for number in sorted(images)],
        np.array([int(labels[number]) - 1 for number in sorted(images)], np.int64),
        np.array([split[number] == "1" for number in sorted(images)], np.bool_),
    )


def read_awa2(root: Path) -> Photos:
    """Read the photos of Animals with Attributes 2 for training and testing, by class and file name.

    There is no official split. Ours sorts the files of a class by the SHA-256 of their names: the
    first 70 % are for training, the next 15 % for validation (left out here), the rest for testing.
    """
    folder = "Animals_with_Attributes2"
    classes = _numbered_lines("awa2", root, f"{folder}/classes.txt")
    _check_classes("awa2", root / folder / "classes.txt", classes, N_AWA)
    files, y, is_train = [], [], []
    for number, animal in sorted(classes.items()):
        with _safely("awa2", root / folder / "classes.txt"):
            check_name(animal, is_folder=True)
        names = [path.name for path in (root / folder / "JPEGImages" / animal).glob("*.jpg")]
        if not names:
            raise missing("awa2", root, f"{folder}/JPEGImages/{animal}/*.jpg")
        names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
        training, testing = names[: round(0.70 * len(names))], names[round(0.85 * len(names)) :]
        files += [f"{folder}/JPEGImages/{animal}/{file}" for file in sorted(training) + sorted(testing)]
        y += [number - 1] * (len(training) + len(testing))
        is_train += [True] * len(training) + [False] * len(testing)
    return Photos(files, np.array(y, np.int64), np.array(is_train, np.bool_))


def read_awa1_features(root: Path) -> Vectors:
    """Read the feature vectors made of Animals with Attributes, the first edition."""
    path = root / "awa1_features.npz"
    if not path.is_file():
        raise MissingData(
            f"no {path.name} in {root}: no publisher offers it, so copy it there, "
            "convert the publisher's descriptors with 'holdfast data convert awa1_features', "
            "or give the folder that holds it with --data or HOLDFAST_DATA"
        )
    expected = ("features", "labels", "is_train")
    try:
        with _safely("awa1_features", path):
            arrays = arrays_of(path, expected, at_most=MAX_FEATURES)
    except KeyError as reason:
        words = "features, labels and is_train"
        raise broken("awa1_features", path, f"no such array ({reason.args[0]})", words) from reason
    x, y, is_train = (arrays[name] for name in expected)
    found = f"features {x.dtype}{x.shape}, labels {y.dtype}{y.shape}, is_train {is_train.dtype}{is_train.shape}"
    if (
        x.ndim != 2
        or y.shape != x.shape[:1]
        or is_train.shape != y.shape
        or x.dtype != np.float16
        or is_train.dtype != np.bool_
        or not np.issubdtype(y.dtype, np.integer)
    ):
        raise broken("awa1_features", path, found, "features float16(n, d), labels integer(n,), is_train bool(n,)")
    if len(y) == 0 or y.min() < 0 or y.max() >= N_AWA:
        raise broken("awa1_features", path, found + " with a label out of range", f"labels 0 to {N_AWA - 1}")
    return Vectors(x, y.astype(np.int64), is_train)


def _numbered_lines(name: str, root: Path, file: str) -> dict[int, str]:
    """Return a list of data set `name`: lines that hold a number and a value."""
    path = root / file
    if not path.is_file():
        raise missing(name, root, file)
    try:
        with _safely(name, path):
            lines = read_at_most(path, MAX_TEXT).decode().splitlines()
    except UnicodeDecodeError as reason:
        raise broken(name, path, f"damaged text ({reason})", "a list in UTF-8") from reason
    values: dict[int, str] = {}
    for i, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        fields = line.split(maxsplit=1)
        if len(fields) != 2 or not _is_number(fields[0]):
            raise broken(name, f"{path} line {i}", repr(line), "a number and a value")
        number = int(fields[0])
        if number in values:
            raise broken(name, f"{path} line {i}", f"number {number} again", "each number once")
        values[number] = fields[1].strip()
    if not values:
        raise broken(name, path, "an empty list", "a number and a value a line")
    return values


def _is_number(text: str) -> bool:
    """Return True for a whole number of some digits. Python refuses to convert one of 5,000 digits."""
    return text.isdecimal() and len(text) <= MAX_DIGITS


def _check_classes(name: str, path: Path, classes: dict[int, str], n_classes: int) -> None:
    if sorted(classes) != list(range(1, n_classes + 1)):
        raise broken(name, path, f"{len(classes)} classes", f"those from 1 to {n_classes}")
