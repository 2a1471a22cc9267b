import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import numpy as np
import pytest
from PIL import Image

from holdfast.data import photos
from holdfast.data.photos import decode, decoded
from holdfast.data.places import BrokenData, MissingData
from tests.support import data_files

SOURCE = Path(photos.__file__).parents[2]
SIZE = 64  # 12 KB a photo: more than a file's buffer, so that half of the work is really on the disk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with eight photos."""
    rng = np.random.default_rng(0)
    for i in range(8):
        data_files.write_photo(tmp_path / f"data/{i}.jpg", rng, size=(30 + i, 40))
    return tmp_path / "data"


def photos_in(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*.jpg"))


def decoded_one_by_one(root: Path) -> list[list[int]]:
    return [decode("cub", root / file, size=SIZE).ravel().tolist() for file in photos_in(root)]


def decoded_at_once(root: Path) -> list[list[int]]:
    return [photo.ravel().tolist() for photo in decoded("cub", root, photos_in(root), size=SIZE)]


def no_decoding(*_: object, **__: object) -> None:
    raise AssertionError("decoded again")


def other_process(root: Path, program: str) -> "subprocess.Popen[str]":
    """A process that runs `program` with photos, root and files at hand."""
    start = (
        "import sys; from pathlib import Path; from holdfast.data import photos\n"
        "root = Path(sys.argv[1]); files = sorted(path.name for path in root.glob('*.jpg'))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", start + program, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )


STOPS_AT_PHOTO_5 = f"""
decode, calls = photos.decode, []
def stopping(name, path, *, size):
    calls.append(path)
    if path.name == "5.jpg":
        print("half-way", flush=True)
        sys.stdin.readline()
    return decode(name, path, size=size)
photos.decode, photos.DECODED_AT_ONCE = stopping, 2
photos.decoded("cub", root, files, size={SIZE})
print(len(calls), flush=True)
"""


def test_a_photo_is_resized_whole_with_red_first(tmp_path: Path):
    left_red_right_blue = np.zeros((10, 20, 3), np.uint8)
    left_red_right_blue[:, :10, 0] = left_red_right_blue[:, 10:, 2] = 200
    Image.fromarray(left_red_right_blue).save(tmp_path / "x.png")
    photo = decode("cub", tmp_path / "x.png", size=4)
    assert photo.shape == (3, 4, 4)
    assert photo[:, 0, 0].tolist() == [200, 0, 0]
    assert photo[:, 3, 3].tolist() == [0, 0, 200]


@pytest.mark.parametrize(("mode", "kind"), [("L", "JPEG"), ("P", "PNG"), ("CMYK", "JPEG"), ("RGBA", "PNG")])
def test_a_photo_in_other_colours_becomes_rgb(tmp_path: Path, mode: str, kind: str):
    Image.new("RGB", (5, 5), (102, 102, 102)).convert(mode).save(tmp_path / "x.jpg", kind)
    assert decode("cub", tmp_path / "x.jpg", size=2).tolist() == [[[102, 102], [102, 102]]] * 3


def test_photos_are_decoded_in_order_and_only_once(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(photos, "DECODED_AT_ONCE", 3)
    expected = decoded_one_by_one(root)
    assert decoded_at_once(root) == expected
    monkeypatch.setattr(photos, "decode", no_decoding)
    assert decoded_at_once(root) == expected


def test_decoded_photos_are_mapped_and_not_loaded(root: Path):
    array = decoded("cub", root, photos_in(root), size=SIZE)
    assert not array.flags.owndata
    assert not array.flags.writeable


def test_a_data_set_that_moved_is_not_decoded_again(root: Path, monkeypatch: pytest.MonkeyPatch):
    expected = decoded_at_once(root)
    moved = root.rename(root.with_name("moved"))
    monkeypatch.setattr(photos, "decode", no_decoding)
    assert decoded_at_once(moved) == expected


def test_a_photo_of_another_size_or_time_is_decoded_anew(root: Path):
    before = decoded_at_once(root)
    path = root / "3.jpg"
    facts = path.stat()
    content = bytearray(path.read_bytes())
    content[-20] ^= 1  # as many bytes as before
    path.write_bytes(content)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert decoded_at_once(root) == decoded_one_by_one(root) != before


def test_a_photo_more_or_less_is_decoded_anew(root: Path):
    assert len(decoded_at_once(root)) == 8
    (root / "3.jpg").unlink()
    assert decoded_at_once(root) == decoded_one_by_one(root)


def test_two_sizes_stand_side_by_side(root: Path):
    assert decoded("cub", root, photos_in(root), size=8).shape == (8, 3, 8, 8)
    assert decoded("cub", root, photos_in(root), size=4).shape == (8, 3, 4, 4)


@pytest.mark.parametrize("content", [b"", b"no photo", None], ids=["empty", "text", "truncated"])
def test_a_broken_photo_is_an_error_that_names_it_and_leaves_nothing(root: Path, content: bytes | None):
    path = root / "3.jpg"
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(BrokenData, match=r"3\.jpg: found damaged data .*, expected a photo: delete the file"):
        decoded_at_once(root)
    assert [file.name for file in (root / ".cache").iterdir()] == [f"cub-{SIZE}.lock"]


def test_a_missing_photo_is_one_sentence_that_says_what_to_do(root: Path):
    with pytest.raises(MissingData, match=r"no 9\.jpg in .*: run 'holdfast data download cub'"):
        decoded("cub", root, ["9.jpg"], size=SIZE)


def test_where_the_data_cannot_be_written_the_users_cache_is_taken(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (root / ".cache").touch()  # a file, so that no folder of that name can be made, not even by root
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    expected = decoded_one_by_one(root)
    assert decoded_at_once(root) == expected
    assert len(list((tmp_path / "cache/holdfast/decoded").glob("*.npy"))) == 1
    monkeypatch.setattr(photos, "decode", no_decoding)
    assert decoded_at_once(root) == expected


def test_where_nothing_can_be_written_the_error_says_what_to_do(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (root / ".cache").touch()
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(OSError, match=r"no place for decoded photos .* or set XDG_CACHE_HOME"):
        decoded_at_once(root)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only_and_never_on_stdout(
    root: Path, terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(photos.Console, "is_terminal", terminal)
    decoded_at_once(root)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("cub: decoding photos" in captured.err) == terminal


def test_a_process_killed_half_way_leaves_nothing_that_is_taken_for_whole(root: Path):
    with other_process(root, STOPS_AT_PHOTO_5) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half-way\n"
        process.kill()
    [part] = (root / ".cache").glob("*.part")
    assert part.stat().st_size > 0
    assert not list((root / ".cache").glob("*.npy"))

    assert decoded_at_once(root) == decoded_one_by_one(root)
    assert not list((root / ".cache").glob("*.part"))


def test_what_a_killed_process_left_goes_even_when_the_photos_have_changed(root: Path):
    (root / ".cache").mkdir()
    (root / f".cache/cub-{SIZE}-0123456789abcdef.npy.part").write_bytes(b"left")
    (root / f".cache/awa2-{SIZE}-0123456789abcdef.npy.part").write_bytes(b"another's")
    decoded_at_once(root)
    assert [part.name[:4] for part in (root / ".cache").glob("*.part")] == ["awa2"]


def test_of_two_processes_at_once_one_decodes_and_the_other_waits(root: Path, monkeypatch: pytest.MonkeyPatch):
    flock = fcntl.flock

    def let_the_other_go_on_and_wait(lock: TextIO, operation: int) -> None:
        with pytest.raises(BlockingIOError):
            flock(lock, operation | fcntl.LOCK_NB)
        assert other.stdin is not None
        other.stdin.write("go on\n")
        other.stdin.flush()
        flock(lock, operation)

    expected = decoded_one_by_one(root)
    monkeypatch.setattr(fcntl, "flock", let_the_other_go_on_and_wait)
    monkeypatch.setattr(photos, "decode", no_decoding)
    with other_process(root, STOPS_AT_PHOTO_5) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "half-way\n"
        assert decoded_at_once(root) == expected
        assert other.communicate()[0] == "8\n"
