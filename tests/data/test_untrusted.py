"""Files of strangers: nothing hangs, fills the memory, starts a program or leads elsewhere."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.data import untrusted
from holdfast.data.catalogue import ArrayFile, IdxFile, IdxFiles, ListedPictures, PicturesByClass
from holdfast.data.layouts import read_awa1_features, read_awa2, read_cifar100, read_cub, read_idx
from holdfast.data.photos import decode, decoded
from holdfast.data.places import BrokenData
from holdfast.data.untrusted import Bounded, Inside, Unsafe, arrays_of, check_name, open_regular, open_zip
from tests.support import data_files

MEGABYTE = 2**20


def peak_bytes(call: Callable[[], object]) -> int:
    """The most that Python and NumPy hold at once while `call` runs or raises."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Regular files


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, link_to_a_device, Path.mkdir])
def test_only_a_regular_file_is_opened_and_no_pipe_is_waited_for(tmp_path: Path, make: Callable[[Path], None]):
    make(tmp_path / "x")
    with pytest.raises(Unsafe, match="expected a file"):
        open_regular(tmp_path / "x")


@pytest.mark.parametrize("make", [pipe, link_to_a_device, Path.mkdir])
def test_a_photo_that_is_no_file_is_refused_by_stream_and_verify(tmp_path: Path, make: Callable[[Path], None]):
    data_files.write_photo(tmp_path / "images/1.bird/0.jpg", np.random.default_rng(0))
    make(tmp_path / "images/1.bird/1.jpg")
    with pytest.raises(BrokenData, match=r"1\.jpg: found .*, expected a file"):
        decode("cub", tmp_path / "images/1.bird/1.jpg", size=4)
    with pytest.raises(BrokenData, match=r"1\.jpg: found .*, expected a file"):
        decoded("cub", tmp_path, ["images/1.bird/0.jpg", "images/1.bird/1.jpg"], size=4)
    for file, lines in {
        "images.txt": "1 1.bird/0.jpg\n2 1.bird/1.jpg\n",
        "image_class_labels.txt": "1 1\n2 1\n",
        "train_test_split.txt": "1 1\n2 0\n",
        "classes.txt": "1 1.bird\n",
    }.items():
        (tmp_path / file).write_text(lines)
    findings = ListedPictures(2, 1, 1).verify(tmp_path, lambda *_: None)
    assert [f.file for f in findings if not f.ok] == [f"{tmp_path.name}/images/1.bird/1.jpg"]


@pytest.mark.parametrize("make", [pipe, link_to_a_device])
def test_arrays_and_lists_that_are_no_files_are_refused(tmp_path: Path, make: Callable[[Path], None]):
    make(tmp_path / "x.npz")
    with pytest.raises(Unsafe, match="expected a file"):
        arrays_of(tmp_path / "x.npz", at_most=MEGABYTE)
    (finding,) = ArrayFile(9, "0", {}).verify(tmp_path / "x.npz", lambda *_: None)
    assert not finding.ok
    assert "expected a file" in finding.words


# Names and links


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/passwd", "C:\\x", "\\\\host\\x", "a\\..\\..\\x", "", "a\0b"]
)
def test_a_name_that_may_lead_elsewhere_is_refused(name: str):
    with pytest.raises(Unsafe, match="expected one inside the folder"):
        check_name(name)


@pytest.mark.parametrize("name", ["001.Bird/Bird_0.jpg", "animal+0", "a..b/c..d"])
def test_an_ordinary_name_passes(name: str):
    check_name(name)


def test_a_link_that_leads_out_of_the_folder_is_refused_and_one_inside_is_not(tmp_path: Path):
    secret, folder = tmp_path / "secret", tmp_path / "data"
    secret.write_text("secret")
    (folder / "a").mkdir(parents=True)
    (folder / "a/file").write_text("inside")
    (folder / "inside").symlink_to("a/file")
    (folder / "outside").symlink_to(secret)
    (folder / "b").symlink_to(tmp_path)
    assert Inside(folder).stat("inside").st_size == 6
    for name in ("outside", "b/secret"):
        with pytest.raises(Unsafe, match="a link that leads out of the folder"):
            Inside(folder).stat(name)


def test_a_data_folder_that_is_a_link_itself_is_read(tmp_path: Path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there/x").write_text("x")
    (tmp_path / "here").symlink_to("there")
    assert Inside(tmp_path / "here").stat("x").st_size == 1


def test_a_list_of_photos_cannot_name_files_elsewhere(tmp_path: Path):
    data_files.write_cub(tmp_path)
    images = tmp_path / "CUB_200_2011/images.txt"
    lines = images.read_text().splitlines()
    for name in ("../../../secret.jpg", "/etc/secret.jpg"):
        images.write_text("\n".join([*lines[:-1], f"600 {name}"]))
        with pytest.raises(BrokenData, match=r"images\.txt: found the name .*secret\.jpg', expected one inside"):
            read_cub(tmp_path)


def test_a_photo_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path):
    rng = np.random.default_rng(0)
    data_files.write_photo(tmp_path / "private/me.jpg", rng)
    data_files.write_photo(tmp_path / "set/images/0.jpg", rng)
    (tmp_path / "set/images/1.jpg").symlink_to(tmp_path / "private/me.jpg")
    with pytest.raises(BrokenData, match=r"1\.jpg: found a link that leads out of the folder"):
        decoded("cub", tmp_path, ["set/images/0.jpg", "set/images/1.jpg"], size=4)
    findings = PicturesByClass(1, 1)  # AwA2 lies otherwise, but is verified by the same look
    (tmp_path / "set/classes.txt").write_text("1 images\n")
    (tmp_path / "set/JPEGImages").mkdir()
    (tmp_path / "set/images").rename(tmp_path / "set/JPEGImages/images")
    words = [f.words for f in findings.verify(tmp_path / "set", lambda *_: None) if not f.ok]
    assert any("a link that leads out of the folder" in word for word in words)


@pytest.mark.parametrize("animal", ["..", "../..", "/etc", "a/b"])
def test_an_animal_is_the_name_of_one_folder(tmp_path: Path, animal: str):
    folder = tmp_path / "Animals_with_Attributes2"
    folder.mkdir()
    (folder / "classes.txt").write_text("".join(f"{i}\t{animal}\n" for i in range(1, 51)))
    with pytest.raises(BrokenData, match=r"classes\.txt: found the name .*, expected one inside the folder"):
        read_awa2(tmp_path)


def test_a_number_of_thousands_of_digits_is_an_error_that_says_where(tmp_path: Path):
    data_files.write_cub(tmp_path)
    labels = tmp_path / "CUB_200_2011/image_class_labels.txt"
    whole = labels.read_text()
    labels.write_text(whole.replace("600 200", f"600 {'9' * 5000}"))
    with pytest.raises(BrokenData, match=r"image_class_labels\.txt: found class"):
        read_cub(tmp_path)
    labels.write_text(f"{'9' * 5000} 1\n{whole}")
    with pytest.raises(BrokenData, match=r"image_class_labels\.txt line 1: found"):
        read_cub(tmp_path)


# Pictures


def png(width: int, height: int, content: bytes = b"") -> bytes:
    """A PNG whose header promises so many pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 10 10
%%EndComments
showpage
"""


def test_a_photo_that_is_a_program_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mark, gs = tmp_path / "ran", tmp_path / "bin/gs"
    gs.parent.mkdir()
    gs.write_text(f"#!/bin/sh\ntouch {mark}\n")
    gs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gs.parent}:{os.environ['PATH']}")
    (tmp_path / "x.jpg").write_bytes(EPS)
    with pytest.raises(BrokenData, match=r"x\.jpg: found damaged data \(no JPEG or PNG picture\), expected a photo"):
        decode("cub", tmp_path / "x.jpg", size=4)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_a_picture_of_another_format_is_refused_whatever_its_name(tmp_path: Path, kind: str):
    Image.new("RGB", (5, 5)).save(tmp_path / "x.jpg", kind)
    with pytest.raises(BrokenData, match="no JPEG or PNG picture"):
        decode("cub", tmp_path / "x.jpg", size=4)


@pytest.mark.parametrize(("width", "height"), [(10_000, 10_000), (2**31 - 1, 2**31 - 1), (100_000, 1_000)])
def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path, width: int, height: int):
    (tmp_path / "x.jpg").write_bytes(png(width, height, zlib.compress(bytes(MEGABYTE))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for a user Pillow's warning is no error
        assert peak_bytes(lambda: decode("cub", tmp_path / "x.jpg", size=4)) < MEGABYTE
    with pytest.raises(BrokenData, match=r"x\.jpg: found .*pixels.*, expected at most 50,000,000"):
        decode("cub", tmp_path / "x.jpg", size=4)


def test_a_picture_file_of_a_gigabyte_is_refused_unread(tmp_path: Path):
    with (tmp_path / "x.jpg").open("wb") as file:
        file.truncate(2**30)
    assert peak_bytes(lambda: decode("cub", tmp_path / "x.jpg", size=4)) < MEGABYTE


def test_decoded_photos_that_came_with_the_data_are_checked(tmp_path: Path):
    data_files.write_photo(tmp_path / "0.jpg", np.random.default_rng(0))
    decoded("cub", tmp_path, ["0.jpg"], size=4)
    (cache,) = (tmp_path / ".cache").glob("*.npy")
    for array in (np.zeros((2, 3, 4, 4), np.uint8), np.zeros((1, 3, 4, 4), np.float32)):
        np.save(cache, array)
        with pytest.raises(BrokenData, match=r"expected uint8\(1, 3, 4, 4\): delete the file, and the photos are"):
            decoded("cub", tmp_path, ["0.jpg"], size=4)
    cache.unlink()
    os.mkfifo(cache)
    with pytest.raises(BrokenData, match=r"no decoded photos \(a pipe, expected a file\)"):
        decoded("cub", tmp_path, ["0.jpg"], size=4)


# Packed files


def test_a_gzip_bomb_is_unpacked_no_further_than_a_file_of_mnist(tmp_path: Path):
    (tmp_path / "mnist").mkdir()
    header = bytes([0, 0, 8, 1]) + (5).to_bytes(4, "big")
    (tmp_path / "mnist/labels.gz").write_bytes(gzip.compress(header + bytes(64 * MEGABYTE)))
    assert peak_bytes(lambda: read_idx(tmp_path, "mnist/labels")) < MEGABYTE
    with pytest.raises(BrokenData, match=r"labels\.gz: found more than 60,008 bytes"):
        read_idx(tmp_path, "mnist/labels")


def test_a_header_that_promises_gigabytes_gets_none(tmp_path: Path):
    (tmp_path / "labels").write_bytes(bytes([0, 0, 8, 1]) + (2**32 - 1).to_bytes(4, "big") + bytes(10))
    assert peak_bytes(lambda: read_idx(tmp_path, "labels")) < MEGABYTE


def test_verify_stops_where_a_gzip_file_is_longer_than_published(tmp_path: Path):
    (tmp_path / "labels.gz").write_bytes(gzip.compress(bytes(64 * MEGABYTE)))
    layout = IdxFiles((IdxFile("labels", 100, "0" * 64),))
    seen: list[int] = []
    (finding,) = layout.verify(tmp_path, lambda done, _: seen.append(done))
    assert "more than 100 bytes" in finding.words
    assert seen[-1] <= 101


def test_a_sparse_file_of_cifar_is_refused_by_its_length(tmp_path: Path):
    with (tmp_path / "train.bin").open("wb") as file:
        file.truncate(3074 * 10**8)
    assert peak_bytes(lambda: read_cifar100(tmp_path, "train.bin")) < MEGABYTE


def npz(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(shape: tuple[int, ...], descr: str, body: bytes) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + body


HOSTILE = {
    "a shape of terabytes": npy((2**42,), "<f2", b""),
    "a bomb": npy((80 * MEGABYTE,), "|u1", bytes(80 * MEGABYTE)),
    "more than its header says": npy((2,), "|u1", bytes(1000)),
    "objects": npy((1,), "|O", b"cos\nsystem\n(S'true'\ntR."),
    "items of no bytes": npy((2**42,), "|V0", b""),
    "a negative shape": npy((-1,), "|u1", b""),
    "no array": b"hello",
    "a header of nothing but brackets": b"\x93NUMPY\x01\x00\xff\x7f" + b"(" * 0x7FFF,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_array_is_refused_in_little_memory(tmp_path: Path, name: str):
    content = npz(features=HOSTILE[name], labels=npy((1,), "|u1", b"\0"), is_train=npy((1,), "|b1", b"\0"))
    (tmp_path / "awa1_features.npz").write_bytes(content)
    assert peak_bytes(lambda: read_awa1_features(tmp_path)) < 4 * MEGABYTE
    with pytest.raises(BrokenData, match=r"awa1_features\.npz: found .*, expected"):
        read_awa1_features(tmp_path)


def test_arrays_come_back_as_numpy_wrote_them(tmp_path: Path):
    held = {"a": np.arange(6.0).reshape(2, 3), "b": np.asfortranarray(np.eye(3, 2)), "c": np.array(["x", "yy"])}
    np.savez_compressed(tmp_path / "x.npz", **held)
    found = arrays_of(tmp_path / "x.npz", at_most=MEGABYTE)
    assert list(found) == list(held)
    for name, array in held.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_zip_archive_whose_directory_alone_fills_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for i in range(2000):
            archive.writestr(f"{i}", b"")
    monkeypatch.setattr(untrusted, "MAX_DIRECTORY", 50_000)
    monkeypatch.setattr(zipfile, "ZipFile", None)  # is not asked
    with (tmp_path / "x.zip").open("rb") as file, pytest.raises(Unsafe, match=r"a directory of 9\d,\d+ bytes"):  # noqa: SIM117
        with open_zip(file):
            pass


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_archive_packed_in_an_unusual_way_is_refused(tmp_path: Path, method: int):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", method) as archive:
        archive.writestr("a", b"a")
    with (tmp_path / "x.zip").open("rb") as file, pytest.raises(Unsafe, match="'a' encrypted or packed in an unusual"):  # noqa: SIM117
        with open_zip(file):
            pass


def test_a_tar_header_that_promises_megabytes_is_not_read(tmp_path: Path):
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 2**30
    content = gzip.compress(member.tobuf() + bytes(64 * MEGABYTE))
    (tmp_path / "x.tar.gz").write_bytes(content)

    def read() -> None:
        with gzip.open(tmp_path / "x.tar.gz") as packed:
            tarfile.open(fileobj=Bounded(packed, 2**40), mode="r:")  # noqa: SIM115

    assert peak_bytes(read) < 4 * MEGABYTE


@pytest.mark.parametrize("name", ["a" * 256, "folder/" + "é" * 128])
def test_a_name_longer_than_a_file_can_have_is_refused(name):
    with pytest.raises(Unsafe, match="expected one inside the folder"):
        check_name(name)
    check_name(name[1:-1])
