"""Files of every format of data, damaged at random: a reader gives data or one error that names the file."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import shutil
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.data import catalogue, download
from holdfast.data.catalogue import ArrayFile, IdxFile, IdxFiles, LabelledRecords, ListedPictures, PicturesByClass
from holdfast.data.layouts import read_awa1_features, read_awa2, read_cifar100, read_cub, read_idx
from holdfast.data.photos import decode
from holdfast.data.places import BrokenData, MissingData
from holdfast.streams.arrays import Arrays
from tests.support import data_files
from tests.support.tries import tries

WORDS = [b"..", b"/", b"\\", b"\0", b"\x1b", b"9" * 400, b"-1", b"NaN", b"\xff", b"PK\1\2", b"(", b"{", b"\n", b"%!PS"]


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with some bytes changed, cut, repeated, or numbers of a header made extreme."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(7):
            case 0 if changed:
                changed[min(place, len(changed) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                del changed[place:]
            case 2:
                del changed[place : place + rng.randrange(1, 64)]
            case 3:
                changed[place:place] = rng.choice(WORDS)
            case 4:
                n = rng.choice([1, 2, 4, 8])
                changed[place : place + n] = rng.choice([b"\xff", b"\0", b"\x7f", b"\x80"]) * n
            case 5:
                changed[place:place] = changed[place : place + rng.randrange(1, 256)]
            case _:
                changed[place:place] = rng.randbytes(rng.randrange(1, 16))
    return bytes(changed)


@contextlib.contextmanager
def only_documented(path: Path) -> Iterator[None]:
    """Inside, nothing may be raised but the errors of broken and missing data, which name what they are about."""
    told = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (BrokenData, MissingData) as error:
            told = str(error)
    assert not told or str(path.parent) in told or str(path.parent.parent) in told, f"{told!r} names no file"
    assert "\n" not in told


def photo(kind: str, mode: str, **options: object) -> bytes:
    rng = np.random.default_rng(0)
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (9, 11, 3), dtype=np.uint8)).convert(mode).save(file, kind, **options)
    return file.getvalue()


PHOTOS = [
    photo("JPEG", "RGB"),
    photo("JPEG", "L", progressive=True),
    photo("JPEG", "CMYK"),
    photo("PNG", "RGB"),
    photo("PNG", "P"),
    photo("PNG", "RGBA", compress_level=0),
    photo("GIF", "P"),
    photo("TIFF", "RGB"),
    photo("BMP", "RGB"),
]


def test_photos(tmp_path: Path):
    path = tmp_path / "photo.jpg"
    for rng in tries(seed=1, at_least=600):
        path.write_bytes(mutated(rng.choice(PHOTOS), rng))
        with only_documented(path):
            found = decode("cub", path, size=4)
            assert (found.shape, found.dtype) == ((3, 4, 4), np.uint8)


def idx(shape: tuple[int, ...]) -> bytes:
    return data_files.idx(np.zeros(shape, np.uint8))


def test_files_of_mnist(tmp_path: Path):
    (tmp_path / "mnist").mkdir()
    for rng in tries(seed=2, at_least=600):
        content = idx((5, 28, 28)) if rng.random() < 0.5 else idx((5,))
        packed = rng.random() < 0.5
        inner = mutated(content, rng) if rng.random() < 0.5 else content
        whole = mutated(gzip.compress(inner), rng) if packed and rng.random() < 0.5 else inner
        path = tmp_path / f"mnist/x{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(inner) if packed and whole is inner else whole)
        with only_documented(path):
            read_idx(tmp_path, "mnist/x", item_shape=(28, 28) if rng.random() < 0.5 else ())
        assert_verified(IdxFiles((IdxFile("x", 100, "0" * 64),)), path.parent)
        path.unlink()


def test_records_of_cifar(tmp_path: Path):
    path = tmp_path / "train.bin"
    for rng in tries(seed=3, at_least=200):
        path.write_bytes(mutated(bytes(3074 * rng.randrange(3)), rng))
        with only_documented(path):
            read_cifar100(tmp_path, path.name)
        assert_verified(LabelledRecords({"train.bin": 2}, n_classes=1), tmp_path)


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("birds")
    folder = root / "CUB_200_2011"
    data_files.write_list(folder / "images.txt", [f"{c:03}.Bird/{i}.jpg" for c in range(200) for i in range(2)])
    data_files.write_list(folder / "image_class_labels.txt", [str(i // 2 + 1) for i in range(400)])
    data_files.write_list(folder / "train_test_split.txt", [str(i % 2) for i in range(400)])
    data_files.write_list(folder / "classes.txt", [f"{c:03}.Bird" for c in range(200)])
    data_files.write_photo(folder / "images/000.Bird/0.jpg", np.random.default_rng(0))
    return root


def test_lists_of_cub(birds: Path):
    folder = birds / "CUB_200_2011"
    for rng in tries(seed=4, at_least=150):
        path = folder / f"{rng.choice(['images', 'image_class_labels', 'train_test_split', 'classes'])}.txt"
        whole = path.read_bytes()
        path.write_bytes(mutated(whole, rng))
        try:
            with only_documented(path):
                for name in read_cub(birds).files:
                    assert name.startswith("CUB_200_2011/images/")
                    assert ".." not in Path(name).parts
            if rng.random() < 0.1:
                assert_verified(ListedPictures(400, 200, 200), folder)
        finally:
            path.write_bytes(whole)


def test_lists_of_awa(tmp_path: Path):
    folder = tmp_path / "Animals_with_Attributes2"
    for c in range(50):
        (folder / f"JPEGImages/animal{c}").mkdir(parents=True)
        (folder / f"JPEGImages/animal{c}/0.jpg").touch()
    whole = "".join(f"{c + 1:8}\tanimal{c}\n" for c in range(50)).encode()
    for rng in tries(seed=5, at_least=200):
        (folder / "classes.txt").write_bytes(mutated(whole, rng))
        with only_documented(folder / "classes.txt"):
            assert all("/JPEGImages/animal" in name for name in read_awa2(tmp_path).files)
        if rng.random() < 0.1:
            assert_verified(PicturesByClass(50, 50), folder)


def npz(rng: random.Random) -> bytes:
    file = io.BytesIO()
    save = np.savez_compressed if rng.random() < 0.5 else np.savez
    save(
        file,
        features=np.zeros((4, 8), np.float16),
        labels=np.zeros(4, np.uint8),
        is_train=np.ones(4, np.bool_),
    )
    return file.getvalue()


def with_mutated_member(archive: bytes, rng: random.Random) -> bytes:
    """The archive with one of its arrays damaged and the checksums right."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(file, "w") as new:
        members = old.namelist()
        chosen = rng.choice(members)
        for name in members:
            content = old.read(name)
            new.writestr(name, mutated(content, rng) if name == chosen else content)
    return file.getvalue()


@pytest.mark.parametrize("form", ["npz", "npy"])
def test_arrays_of_ones_own(tmp_path: Path, form: str):
    arrays = data_files.own_arrays(4, 2, 1)
    folder = tmp_path / "mine"
    folder.mkdir()
    for rng in tries(seed=8, at_least=300):
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        np.savez(folder / "mine.npz", **arrays)
        path = folder / ("mine.npz" if form == "npz" else f"{rng.choice([*arrays])}.npy")
        path.write_bytes(mutated(path.read_bytes(), rng))
        with only_documented(path):
            split = rng.choice(["classes", "given"])
            stream = Arrays(path=str(path if form == "npz" else folder), split=split, classes_per_task=1)
            assert len(stream[0].train[:].x)


def test_archives_of_arrays(tmp_path: Path):
    path = tmp_path / "awa1_features.npz"
    for rng in tries(seed=6, at_least=400):
        whole = npz(rng)
        path.write_bytes(with_mutated_member(whole, rng) if rng.random() < 0.6 else mutated(whole, rng))
        with only_documented(path):
            read_awa1_features(tmp_path)
        assert_verified(ArrayFile(len(whole), "0" * 64, {"features": ("<f2", (4, 8))}), path)


def assert_verified(layout: catalogue.Layout, place: Path) -> None:
    """Both looks at a data set say what is wrong, and raise nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layout.missing(place)
        assert all(finding.words for finding in layout.verify(place, lambda *_: None))


def tar(rng: random.Random) -> bytes:
    file = io.BytesIO()
    with tarfile.open(
        fileobj=file,
        mode=rng.choice(["w:gz", "w"]),
        format=rng.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    ) as archive:
        for name in ("set/a", "set/b/c", f"set/{'long' * 20}/{'long' * 12}"):
            member = tarfile.TarInfo(name)
            member.size = 100
            if rng.random() < 0.2:
                member.type = rng.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
                member.linkname, member.size = rng.choice(["../../x", "a", "/etc/passwd"]), 0
            archive.addfile(member, io.BytesIO(bytes(100)))
    return file.getvalue()


def zipped(rng: random.Random) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name in ("set/a", "set/b/c", rng.choice(["set/d", "../x", "/x", "C:\\x", "set/\n"])):
            archive.writestr(name, bytes(100))
    return file.getvalue()


PACK: dict[str, Callable[[random.Random], bytes]] = {"tar": tar, "zip": zipped}


@pytest.mark.parametrize("kind", PACK)
def test_archives_of_files(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(download, "LEAST_UNPACKED", 2**20)
    outside = tmp_path / "outside"
    for rng in tries(seed=7, at_least=200):
        inside = outside / "inside"
        inside.mkdir(parents=True)
        source = tmp_path / "archive"
        packed = PACK[kind](rng)
        if kind == "tar" and packed[:2] == b"\x1f\x8b" and rng.random() < 0.5:
            packed = gzip.compress(mutated(gzip.decompress(packed), rng))
        elif rng.random() < 0.8:
            packed = mutated(packed, rng)
        source.write_bytes(packed)
        offered = catalogue.Archive("archive", (), None, None, kind)  # type: ignore[arg-type]
        with contextlib.suppress(download._Broken, download.DownloadError), download._disk(inside):
            download._unpack(offered, source, inside, "set", lambda *_: None)
        assert [path.name for path in outside.iterdir()] == ["inside"], "something lies outside the folder"
        assert all(path.is_file() or path.is_dir() for path in inside.rglob("*"))
        assert not any(path.is_symlink() for path in inside.rglob("*"))
        shutil.rmtree(outside)
