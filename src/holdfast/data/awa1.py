"""awa1_features.npz from the descriptors that the publisher of Animals with Attributes offers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.data.places import BrokenData, MissingData
from holdfast.data.untrusted import MAX_TEXT, Unsafe, check_name, one_line, read_at_most

# In the order in which they are joined. Only these are histograms of counts; the first comes as shares already.
DESCRIPTORS = ("phog-hist", "lss-hist", "sift-hist", "surf-hist", "rgsift-hist")
SHARES_ALREADY = "phog-hist"
N_FEATURES = 512
TEST_SHARE = 0.2
SEED = 0  # of the split
N_PUBLISHED = (30_475, 8_252)  # pictures, and numbers of the five descriptors together
MOST_TEXT = 1 << 20  # bytes of the descriptor of one picture, which has some tens of thousands
ROWS_AT_ONCE = 2048

Floats = NDArray[np.float32]
Progress = Callable[[int, int], None]  # pictures read, pictures in all


@dataclass(frozen=True)
class Converted:
    """Report of a conversion: number of pictures, numbers a picture before and after, share of energy kept."""

    n_pictures: int
    n_numbers: int
    n_features: int
    energy: float

    @property
    def is_as_published(self) -> bool:
        return (self.n_pictures, self.n_numbers) == N_PUBLISHED


def convert_awa1(folder: Path, to: Path, progress: Progress = lambda _done, _total: None) -> Converted:
    """Make the file `to` of the unpacked archives in `folder`, which is called Animals_with_Attributes there.

    It holds classes.txt, predicate-matrix-binary.txt, and Features/<descriptor>/<class>/<picture>.txt with the numbers
    of one picture. Each histogram is brought to a sum of one and square-rooted; each descriptor is centred and scaled
    to the same energy; all are joined and projected onto their first 512 principal components. Of each class, a fifth
    is drawn for testing. Mean, scale and components are those of the training pictures. About 4 GB of memory.
    """
    classes = _classes(folder / "classes.txt")
    attributes = _attributes(folder / "predicate-matrix-binary.txt", len(classes))
    pictures = [(name, picture) for name in classes for picture in _pictures(folder, name)]
    y = np.array([classes.index(name) for name, _ in pictures], np.uint8)
    is_train = _split(y, len(classes))
    blocks, n_read = [], 0
    for descriptor in DESCRIPTORS:
        rows: Floats | None = None
        for i, (name, picture) in enumerate(pictures):
            numbers = _numbers(folder / "Features" / descriptor / name / picture)
            if rows is None:
                rows = np.empty((len(pictures), len(numbers)), np.float32)
            if len(numbers) != rows.shape[1]:
                place = folder / "Features" / descriptor / name / picture
                raise _broken(place, f"{len(numbers)} numbers", f"{rows.shape[1]}")
            rows[i] = numbers
            n_read += 1
            progress(n_read, len(DESCRIPTORS) * len(pictures))
        assert rows is not None
        blocks.append(_of_equal_energy(rows, is_train, sums_to_one=descriptor != SHARES_ALREADY))
    joined = np.concatenate(blocks, axis=1)
    del blocks
    features, energy = principal_components(joined, is_train, N_FEATURES)
    _write(to, features.astype(np.float16), y, is_train, np.array(classes), attributes)
    return Converted(len(y), joined.shape[1], features.shape[1], energy)


def principal_components(x: Floats, is_train: NDArray[np.bool_], n: int) -> tuple[Floats, float]:
    """Return the first `n` components of centred rows (m, d), or all, and the share of energy that they keep.

    They are found on the training rows, and scaled by one number so that the training rows have n numbers of mean
    square one. A component points where its largest weight is positive.
    """
    train = np.flatnonzero(is_train)
    covariance = np.zeros((x.shape[1], x.shape[1]))
    for start in range(0, len(train), ROWS_AT_ONCE):
        rows = x[train[start : start + ROWS_AT_ONCE]].astype(np.float64)
        covariance += rows.T @ rows
    energies, directions = np.linalg.eigh(covariance)
    n = min(n, x.shape[1], len(train))
    directions = directions[:, ::-1][:, :n]
    largest = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(directions[largest, np.arange(n)])
    kept = energies[::-1][:n].sum()
    scale = np.sqrt(n * len(train) / kept)
    weights = (directions * scale).astype(np.float32)
    features = np.concatenate([x[start : start + ROWS_AT_ONCE] @ weights for start in range(0, len(x), ROWS_AT_ONCE)])
    return features, float(kept / energies.sum())


def _of_equal_energy(x: Floats, is_train: NDArray[np.bool_], *, sums_to_one: bool) -> Floats:
    """Return rows (m, d) square-rooted, less their mean; their mean squared length over training rows is one."""
    if sums_to_one:
        x = x / np.maximum(x.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)  # an empty histogram stays empty
    x = np.sqrt(x)
    x -= x[is_train].mean(axis=0, dtype=np.float64).astype(np.float32)
    energy = np.square(x[is_train]).sum(axis=1, dtype=np.float64).mean()
    if not energy > 0:
        raise BrokenData("all training pictures have the same descriptor: the data is not complete, get it again")
    return x / np.float32(np.sqrt(energy))


def _split(y: NDArray[np.uint8], n_classes: int) -> NDArray[np.bool_]:
    rng = np.random.default_rng(SEED)
    is_train = np.ones(len(y), np.bool_)
    for c in range(n_classes):
        rows = rng.permutation(np.flatnonzero(y == c))
        is_train[rows[: round(TEST_SHARE * len(rows))]] = False
    return is_train


def _classes(path: Path) -> list[str]:
    classes = []
    for number, line in enumerate(_text(path, MAX_TEXT).splitlines(), start=1):
        fields = line.split()
        if len(fields) != 2 or fields[0] != str(number):
            raise _broken(f"{path} line {number}", repr(line), f"{number} and the name of a class")
        try:
            check_name(fields[1])
        except Unsafe as reason:
            raise _broken(f"{path} line {number}", one_line(reason), "the name of a class") from reason
        classes.append(fields[1])
    if not 0 < len(classes) <= 50 or len(set(classes)) < len(classes):
        raise _broken(path, f"{len(classes)} classes, {len(set(classes))} different", "50 classes")
    return classes


def _attributes(path: Path, n_classes: int) -> NDArray[np.uint8]:
    rows = [line.split() for line in _text(path, MAX_TEXT).splitlines()]
    values = {value for row in rows for value in row}
    if len(rows) != n_classes or len({len(row) for row in rows}) != 1 or values - {"0", "1"}:
        raise _broken(path, f"{len(rows)} lines", f"{n_classes} lines of as many zeros and ones")
    return np.array(rows).astype(np.uint8)


def _pictures(folder: Path, name: str) -> list[str]:
    """Return the files of a class in their order; every descriptor must have the same."""
    found = {}
    for descriptor in DESCRIPTORS:
        place = folder / "Features" / descriptor / name
        if not place.is_dir():
            raise MissingData(f"no {place}: unpack AwA-features-{descriptor.removesuffix('-hist')}.tar.bz2 there")
        found[descriptor] = sorted(entry.name for entry in os.scandir(place) if entry.name.endswith(".txt"))
    first = found[DESCRIPTORS[0]]
    for descriptor, pictures in found.items():
        if pictures != first or not first:
            told = f"{len(pictures)} pictures, or others than the {len(first)} of {DESCRIPTORS[0]}"
            raise _broken(folder / "Features" / descriptor / name, told, "the same pictures for every descriptor")
    return first


def _numbers(path: Path) -> Floats:
    text = _text(path, MOST_TEXT)
    try:
        numbers = np.array(text.replace(",", " ").split(), np.float32)
    except ValueError as reason:
        raise _broken(path, one_line(reason), "numbers") from reason
    if not len(numbers) or not np.isfinite(numbers).all() or (numbers < 0).any():
        raise _broken(path, "no numbers, or some below zero or infinite", "a histogram")
    return numbers


def _text(path: Path, at_most: int) -> str:
    if not path.exists():
        raise MissingData(f"no {path}: unpack AwA-base.tar.bz2 and the AwA-features archives there")
    try:
        return read_at_most(path, at_most).decode("ascii")
    except (OSError, ValueError) as reason:
        raise _broken(path, one_line(reason), "plain text") from reason


def _broken(place: object, found: str, expected: str) -> BrokenData:
    return BrokenData(f"{place}: found {found}, expected {expected}")


def _write(
    to: Path,
    features: NDArray[np.float16],
    y: NDArray[np.uint8],
    is_train: NDArray[np.bool_],
    classes: NDArray[np.str_],
    attributes: NDArray[np.uint8],
) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    aside = to.with_name(f"{to.name}.{os.getpid()}.writing")
    try:
        with aside.open("wb") as file:
            np.savez_compressed(
                file,
                features=features,
                labels=y,
                is_train=is_train,
                class_names=classes,
                class_attributes=attributes,
                converted_by=np.array("holdfast data convert"),  # by which the catalogue knows it
            )
        aside.replace(to)
    finally:
        aside.unlink(missing_ok=True)
