"""The data sets that streams read: where each is expected, who publishes it, and whether it is whole."""

from __future__ import annotations

import difflib
import gzip
import hashlib
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol

import numpy as np

from holdfast.data.untrusted import MAX_TEXT, Inside, Unsafe, arrays_of, open_picture, open_regular, read_at_most

Progress = Callable[[int, int], None]  # bytes looked at, bytes in all
State = Literal["absent", "incomplete", "present"]
BLOCK = 1 << 20
MOST_ARRAYS = 4  # times the size of the file they come in


def silent(_done: int, _total: int) -> None:
    """Callback that does nothing."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: `file` is below the data root."""

    file: str
    ok: bool
    words: str


@dataclass(frozen=True)
class Status:
    """Result of a quick look at the files and sizes of a data set; `missing` is in words."""

    state: State
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Archive:
    """A file that a publisher offers.

    Attributes:
        urls: tried in this order.
        size: in bytes, None where it could not be confirmed.
        checksum: "sha256:…" or "md5:…", None where it could not be confirmed.
        kind: how it is unpacked; a "file" stays as it is.
        at_most: bytes that it may have where its size could not be confirmed.
    """

    file: str
    urls: tuple[str, ...]
    size: int | None
    checksum: str | None
    kind: Literal["tar", "zip", "file"]
    at_most: int | None = None


class Layout(Protocol):
    """Layout of a data set on disk; `place` is its folder or file."""

    def missing(self, place: Path) -> list[str]:
        """Return the defects that a quick look finds, in words; empty if the data set is complete."""
        ...

    def verify(self, place: Path, progress: Progress) -> list[Finding]:
        """Return the findings of a check of every byte."""
        ...


@dataclass(frozen=True)
class DataSet:
    """A data set as plain data, and the two looks at a copy of it.

    Attributes:
        where: its folder or file below the data root.
        download_size: in words.
        streams: the streams that read it.
        by_hand: what to do where it cannot be downloaded from here.
    """

    name: str
    title: str
    where: str
    layout: Layout
    homepage: str
    archives: tuple[Archive, ...]
    download_size: str
    licence: str
    streams: tuple[str, ...]
    by_hand: str

    def status(self, root: Path) -> Status:
        """Take a quick look: are the files there, and as long as they should be?"""
        place = root / self.where
        if not place.exists() or (place.is_dir() and not any(place.iterdir())):
            return Status("absent", (f"{self.where} is not there",))
        missing = tuple(self.layout.missing(place))
        return Status("incomplete" if missing else "present", missing)

    def verify(self, root: Path, progress: Progress = silent) -> list[Finding]:
        """Take a deep look, at every byte of the set."""
        place = root / self.where
        if not place.exists():
            return [Finding(self.where, False, "not there")]
        return self.layout.verify(place, progress)


class _Meter:
    """Adds up the bytes that were looked at and passes the sum on."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, n_bytes: int) -> None:
        self.done += n_bytes
        self.progress(self.done, self.total)


def _sha256(file: IO[bytes] | gzip.GzipFile, meter: _Meter, at_most: int) -> str:
    """Return the digest of a file of at most so many bytes. Raise ValueError, and stop reading, if it is longer."""
    digest = hashlib.sha256()
    left = at_most + 1
    while block := file.read(min(BLOCK, left)):
        digest.update(block)
        left -= len(block)
        meter.add(len(block))
        if left == 0:
            raise Unsafe(f"more than {at_most:,} bytes", "no more")
    return digest.hexdigest()


@dataclass(frozen=True)
class IdxFile:
    """Name, size and SHA-256 of an IDX file, all of the uncompressed content."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class IdxFiles:
    """A folder of IDX files, each compressed by gzip or not."""

    files: tuple[IdxFile, ...]

    def missing(self, place: Path) -> list[str]:
        words = []
        for file in self.files:
            copies = self._copies(place, file)
            if not copies:
                words.append(f"{file.name} is not there, nor {file.name}.gz")
            for copy in copies:
                size = _uncompressed_size(copy)
                if size != file.size:
                    words.append(f"{copy.name} holds {size:,} bytes, expected {file.size:,}")
        return words

    def verify(self, place: Path, progress: Progress) -> list[Finding]:
        copies = [(copy, file) for file in self.files for copy in self._copies(place, file)]
        meter = _Meter(sum(file.size for _, file in copies), progress)
        findings = [
            Finding(f"{place.name}/{file.name}", False, "not there, compressed or not")
            for file in self.files
            if not self._copies(place, file)
        ]
        for copy, file in copies:
            findings.append(self._verify_copy(copy, file, meter))
        return findings

    def _copies(self, place: Path, file: IdxFile) -> list[Path]:
        return [path for path in (place / file.name, place / f"{file.name}.gz") if path.is_file()]

    def _verify_copy(self, copy: Path, file: IdxFile, meter: _Meter) -> Finding:
        name = f"{copy.parent.name}/{copy.name}"
        try:
            with open_regular(copy) as packed, gzip.open(packed) if copy.suffix == ".gz" else packed as content:
                found = _sha256(content, meter, file.size)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            return Finding(name, False, f"cannot be read: {error}")
        if found != file.sha256:
            return Finding(name, False, f"wrong content: SHA-256 is {found}, expected {file.sha256}")
        return Finding(name, True, "the published content")


def _uncompressed_size(path: Path) -> int:
    """Return the size in the last four bytes of a gzip file, without unpacking it."""
    size = path.stat().st_size
    if path.suffix != ".gz" or size < 4:
        return size
    with path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


@dataclass(frozen=True)
class LabelledRecords:
    """CIFAR-100's binary files: records of a coarse label, a fine label and the pixels.

    Attributes:
        records: of each file, by name.
    """

    records: dict[str, int]
    n_classes: int
    n_coarse: int = 20
    record_size: int = 2 + 3 * 32 * 32
    names: str = "fine_label_names.txt"  # nothing but names, so a set without it is whole

    def missing(self, place: Path) -> list[str]:
        words = []
        for name, n_records in self.records.items():
            path = place / name
            if not path.is_file():
                words.append(f"{name} is not there")
            elif path.stat().st_size != n_records * self.record_size:
                words.append(self._wrong_size(path, n_records))
        return words

    def verify(self, place: Path, progress: Progress) -> list[Finding]:
        meter = _Meter(sum(self.records.values()) * self.record_size, progress)
        findings = []
        for name, n_records in self.records.items():
            words = self._wrong(place / name, n_records, meter)
            findings.append(
                Finding(f"{place.name}/{name}", not words, words or f"{n_records:,} records, equal classes")
            )
        if (path := place / self.names).is_file():
            n_names = len(read_at_most(path, MAX_TEXT).split())
            findings.append(Finding(f"{place.name}/{self.names}", *_count(n_names, self.n_classes, "names")))
        return findings

    def _wrong_size(self, path: Path, n_records: int) -> str:
        expected = n_records * self.record_size
        return f"{path.name} holds {path.stat().st_size:,} bytes, expected {expected:,}"

    def _wrong(self, path: Path, n_records: int, meter: _Meter) -> str:
        """Return the defect of the file, in words; empty if there is none."""
        if not path.is_file():
            return "not there"
        if path.stat().st_size != n_records * self.record_size:
            return self._wrong_size(path, n_records)
        counts = np.zeros(256, dtype=np.int64)
        highest_coarse = 0
        with path.open("rb") as file:
            while block := file.read(1000 * self.record_size):
                records = np.frombuffer(block, np.uint8).reshape(-1, self.record_size)
                highest_coarse = max(highest_coarse, int(records[:, 0].max()))
                counts += np.bincount(records[:, 1], minlength=256)
                meter.add(len(block))
        if highest_coarse >= self.n_coarse:
            return f"coarse label {highest_coarse}, expected 0 to {self.n_coarse - 1}"
        if counts[self.n_classes :].any():
            return f"fine label {int(counts.nonzero()[0][-1])}, expected 0 to {self.n_classes - 1}"
        expected = n_records // self.n_classes
        for label in np.flatnonzero(counts[: self.n_classes] != expected):
            return f"{counts[label]} records of class {label}, expected {expected}"
        return ""


@dataclass(frozen=True)
class ListedPictures:
    """CUB's folder: pictures below images/, and lists that say what each is."""

    n_pictures: int
    n_train: int
    n_classes: int

    lists = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")

    def missing(self, place: Path) -> list[str]:
        words = [f"{name} is not there" for name in self.lists if not (place / name).is_file()]
        n_found = len(_pictures_below(place / "images"))
        if n_found < self.n_pictures:
            words.append(f"images holds {n_found:,} pictures, expected {self.n_pictures:,}")
        return words

    def verify(self, place: Path, progress: Progress) -> list[Finding]:
        tables: dict[str, dict[int, str]] = {}
        findings = []
        for name in self.lists:
            try:
                tables[name] = _numbered_lines(place / name)
            except (OSError, ValueError) as error:
                findings.append(Finding(f"{place.name}/{name}", False, f"cannot be read: {_reason(error)}"))
        if findings:
            return findings
        for name, (ok, words) in zip(self.lists, self._verify_lists(*tables.values()), strict=True):
            findings.append(Finding(f"{place.name}/{name}", ok, words))
        pictures = [f"images/{name}" for name in tables["images.txt"].values()]
        return findings + _open_all(place, pictures, progress)

    def _verify_lists(
        self, images: dict[int, str], labels: dict[int, str], split: dict[int, str], classes: dict[int, str]
    ) -> list[tuple[bool, str]]:
        """Return the findings for each of the four lists, in their order."""
        known = {str(number) for number in classes}
        n_train = Counter(split.values())["1"]
        n_test = Counter(split.values())["0"]
        strangers = [number for number, label in labels.items() if label not in known]
        misplaced = [
            number
            for number, label in labels.items()
            if label in known and images.get(number, "").split("/")[0] != classes[int(label)]
        ]
        if strangers:
            on_labels = (False, f"image {strangers[0]} has class {labels[strangers[0]]}, not in classes.txt")
        elif labels.keys() != images.keys():
            on_labels = (False, "does not label exactly the images of images.txt")
        elif misplaced:
            on_labels = (False, f"image {misplaced[0]} lies in the folder of another class")
        else:
            on_labels = _count(len(set(labels.values())), self.n_classes, "classes")
        n_expected_test = self.n_pictures - self.n_train
        split_is_right = (n_train, n_test, split.keys()) == (self.n_train, n_expected_test, images.keys())
        expected = "" if split_is_right else f", expected {self.n_train:,} and {n_expected_test:,}"
        return [
            _count(len(images), self.n_pictures, "pictures listed"),
            on_labels,
            (split_is_right, f"{n_train:,} to train and {n_test:,} to test{expected}"),
            _count(len(classes), self.n_classes, "classes"),
        ]


@dataclass(frozen=True)
class PicturesByClass:
    """AwA2's folder: classes.txt, and JPEGImages/ with one folder a class."""

    n_pictures: int
    n_classes: int

    def missing(self, place: Path) -> list[str]:
        words = [] if (place / "classes.txt").is_file() else ["classes.txt is not there"]
        n_found = len(_pictures_below(place / "JPEGImages"))
        if n_found < self.n_pictures:
            words.append(f"JPEGImages holds {n_found:,} pictures, expected {self.n_pictures:,}")
        return words

    def verify(self, place: Path, progress: Progress) -> list[Finding]:
        try:
            classes = _numbered_lines(place / "classes.txt")
        except (OSError, ValueError) as error:
            return [Finding(f"{place.name}/classes.txt", False, f"cannot be read: {_reason(error)}")]
        pictures = [f"JPEGImages/{name}" for name in _pictures_below(place / "JPEGImages")]
        findings = [
            Finding(f"{place.name}/classes.txt", *_count(len(classes), self.n_classes, "classes")),
            Finding(f"{place.name}/JPEGImages", *_count(len(pictures), self.n_pictures, "pictures")),
        ]
        # A picture lies in JPEGImages/<class>/, so its class is the folder.
        filled = {name.split("/")[1] for name in pictures}
        for name in sorted(filled ^ set(classes.values())):
            words = "not a class of classes.txt" if name in filled else "no pictures of this class"
            findings.append(Finding(f"{place.name}/JPEGImages/{name}", False, words))
        return findings + _open_all(place, pictures, progress)


@dataclass(frozen=True)
class ArrayFile:
    """One .npz file, known to the byte, or converted here from what its publisher offers.

    Attributes:
        arrays: type and shape of each, by name.
        mark: the array that only a file which was converted here has; its bytes are not known.
    """

    size: int
    sha256: str
    arrays: dict[str, tuple[str, tuple[int, ...]]]
    mark: str = ""

    def missing(self, place: Path) -> list[str]:
        size = place.stat().st_size
        if size == self.size or self._is_converted(place):
            return []
        return [f"{place.name} holds {size:,} bytes, expected {self.size:,}"]

    def _is_converted(self, place: Path) -> bool:
        try:
            return bool(self.mark) and self.mark in arrays_of(place, [self.mark], at_most=MAX_TEXT)
        except (OSError, ValueError, KeyError):
            return False

    def verify(self, place: Path, progress: Progress) -> list[Finding]:
        findings: list[Finding] = []
        try:
            with open_regular(place) as file:
                found = _sha256(file, _Meter(place.stat().st_size, progress), self.size)
            right = found == self.sha256
            words = "the known content" if right else f"SHA-256 is {found}, expected {self.sha256}"
            if not right and self._is_converted(place):
                right, words = True, "converted here; not the file behind the stored results"
            findings = [Finding(place.name, right, words)]
            held = arrays_of(place, at_most=MOST_ARRAYS * self.size)
        except (OSError, ValueError) as error:
            return [*findings, Finding(place.name, False, f"cannot be read: {error}")]
        arrays = {name: (array.dtype.str, array.shape) for name, array in held.items()}
        for name, expected in self.arrays.items():
            if arrays.get(name) != expected:
                words = f"array {name} is {arrays.get(name, 'not there')}, expected {expected}"
                findings.append(Finding(place.name, False, words))
        return findings


def _count(found: int, expected: int, what: str) -> tuple[bool, str]:
    """Return True if the number is right, and a sentence that says so."""
    right = found == expected
    return right, f"{found:,} {what}" + ("" if right else f", expected {expected:,}")


def _numbered_lines(path: Path) -> dict[int, str]:
    """Return the lines of a list such as "1 001.Black_footed_Albatross", by number."""
    lines: dict[int, str] = {}
    for row, line in enumerate(read_at_most(path, MAX_TEXT).decode().splitlines(), start=1):
        number, _, value = line.strip().replace("\t", " ").partition(" ")
        if not number.isdecimal() or len(number) > 9 or not value or int(number) in lines:
            raise ValueError(f"line {row} is {line!r}, expected a new number and a value")
        lines[int(number)] = value.strip()
    return lines


def _pictures_below(folder: Path) -> list[str]:
    """Return the pictures in the class folders of `folder`, as class/picture."""
    if not folder.is_dir():
        return []
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    return [
        f"{name}/{entry.name}"
        for name in classes
        for entry in sorted(os.scandir(folder / name), key=lambda entry: entry.name)
        if entry.is_file() and not entry.name.startswith(".")
    ]


def _open_all(place: Path, pictures: Sequence[str], progress: Progress) -> list[Finding]:
    """Decode every picture: one finding for each that fails, one for all that do not."""
    folder = Inside(place)
    sizes = [_size(folder, name) for name in pictures]
    meter = _Meter(sum(sizes), progress)
    broken = []
    for name, size in zip(pictures, sizes, strict=True):
        words = _why_unreadable(folder, name)
        if words:
            broken.append(Finding(f"{place.name}/{name}", False, words))
        meter.add(size)
    n_good = len(pictures) - len(broken)
    good = [Finding(place.name, True, f"{n_good:,} pictures open")] if n_good else []
    return good + broken


def _size(folder: Inside, name: str) -> int:
    try:
        return folder.stat(name).st_size
    except (OSError, ValueError):
        return 0


def _why_unreadable(folder: Inside, name: str) -> str:
    """Return why a picture cannot be decoded; '' if it can."""
    try:
        folder.stat(name)
        with warnings.catch_warnings(), open_picture(folder.folder / name) as image:
            warnings.simplefilter("ignore")  # odd camera data is not damage
            # Pillow's own verify() does not see a JPEG that was cut off. An eighth of the size is enough.
            image.draft(None, (1, 1))
            image.load()
    except FileNotFoundError:
        return "not there"
    except Exception as error:  # Pillow's decoders raise many kinds, and each means the same here
        return f"cannot be decoded: {_reason(error)}"
    return ""


def _reason(error: Exception) -> str:
    """Return the message of an error without the path, which the finding names already."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


def _mnist_archive(file: str, size: int, sha256: str) -> Archive:
    urls = tuple(mirror + file for mirror in _MNIST_MIRRORS)
    return Archive(file, urls, size, f"sha256:{sha256}", "file")


_MNIST = DataSet(
    name="mnist",
    title="MNIST, handwritten digits",
    where="mnist",
    layout=IdxFiles(
        (
            IdxFile(
                "train-images-idx3-ubyte",
                47_040_016,
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            IdxFile(
                "train-labels-idx1-ubyte",
                60_008,
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            IdxFile(
                "t10k-images-idx3-ubyte",
                7_840_016,
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            IdxFile(
                "t10k-labels-idx1-ubyte",
                10_008,
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        )
    ),
    homepage="http://yann.lecun.com/exdb/mnist/",
    archives=(
        _mnist_archive(
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        _mnist_archive(
            "train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        _mnist_archive(
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        _mnist_archive(
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    download_size="12 MB",
    licence="usually passed on under CC BY-SA 3.0",
    streams=("permuted_mnist",),
    by_hand=f"put the four files of {_MNIST_MIRRORS[0]}, compressed or not, in the folder mnist",
)

_CIFAR100 = DataSet(
    name="cifar100",
    title="CIFAR-100, small photographs of 100 classes",
    where="cifar-100-binary",
    layout=LabelledRecords({"train.bin": 50_000, "test.bin": 10_000}, n_classes=100),
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    archives=(
        Archive(
            "cifar-100-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
            168_513_733,
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            "tar",
        ),
    ),
    download_size="169 MB",
    licence="no explicit licence; customarily used for research, with citation",
    streams=("split_cifar100",),
    by_hand="unpack cifar-100-binary.tar.gz, which holds the folder cifar-100-binary",
)

_CUB = DataSet(
    name="cub",
    title="CUB-200-2011, photographs of 200 kinds of birds",
    where="CUB_200_2011",
    layout=ListedPictures(n_pictures=11_788, n_train=5_994, n_classes=200),
    homepage="https://www.vision.caltech.edu/datasets/cub_200_2011/",
    archives=(
        Archive(
            "CUB_200_2011.tgz",
            ("https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",),
            1_150_585_339,
            "sha256:0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
            "tar",
        ),
    ),
    download_size="1.2 GB",
    licence="non-commercial research and education only; the photographs belong to their photographers",
    streams=("split_cub",),
    by_hand="unpack CUB_200_2011.tgz, which holds the folder CUB_200_2011",
)

_AWA2 = DataSet(
    name="awa2",
    title="Animals with Attributes 2, photographs of 50 kinds of animals",
    where="Animals_with_Attributes2",
    layout=PicturesByClass(n_pictures=37_322, n_classes=50),
    homepage="https://cvml.ista.ac.at/AwA2/",
    archives=(
        Archive(
            "AwA2-data.zip",
            ("https://cvml.ista.ac.at/AwA2/AwA2-data.zip",),
            None,
            "sha256:cc5a849879165acaa2b52f1de3f146ffcd1c475f6ef85bab0152c763e573744f",
            "zip",
            at_most=16 * 10**9,
        ),
    ),
    download_size="13 GB",
    licence="each picture has its own licence, which the archive states",
    streams=("split_awa",),
    by_hand="unpack AwA2-data.zip, which holds the folder Animals_with_Attributes2",
)

_AWA1_FEATURES = DataSet(
    name="awa1_features",
    title="Animals with Attributes, first edition, as feature vectors",
    where="awa1_features.npz",
    layout=ArrayFile(
        29_138_765,
        "1b2717bb87c21488fb6eabb6b2e740319f1fbee145b65bb930befd27e58e50a3",
        {
            "features": ("<f2", (30_475, 512)),
            "labels": ("|u1", (30_475,)),
            "is_train": ("|b1", (30_475,)),
            "class_names": ("<U15", (50,)),
            "class_attributes": ("|u1", (50, 85)),
        },
        mark="converted_by",
    ),
    homepage="https://cvml.ista.ac.at/AwA/",
    archives=(),
    download_size="not published: see holdfast data convert",
    licence="derived from descriptors published for research; the photographs may not be passed on",
    streams=("split_awa",),
    by_hand="no publisher offers it: copy awa1_features.npz into the data folder",
)

CATALOGUE = {data_set.name: data_set for data_set in (_MNIST, _CIFAR100, _CUB, _AWA2, _AWA1_FEATURES)}


class UnknownDataSet(LookupError):
    """No data set has this name; the message says which are meant."""


def find(name: str) -> DataSet:
    """Return the data set of that name."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    raise UnknownDataSet(f"no '{name}' among the data sets: {_suggestion(name, CATALOGUE)}")


def _suggestion(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean '{close[0]}'?" if close else f"there are {', '.join(names)}"
