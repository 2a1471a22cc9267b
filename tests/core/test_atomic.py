"""At every instant a whole file is at the path, whoever writes there and however a writer ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.core import atomic
from holdfast.core.atomic import replacing
from holdfast.core.checkpoint import previous_checkpoint, read_checkpoint, write_checkpoint

SIZE = 20_000


def write(path: Path, number: int, *, keep: bool = True) -> None:
    """Write a file that is whole if all its bytes are the same and of the right count."""
    with replacing(path, previous=previous_checkpoint(path) if keep else None) as file:
        for _ in range(4):
            file.write(bytes([number]) * (SIZE // 4))
            file.flush()


def number_in(path: Path) -> int:
    """The number that was written to a file; fails if it is not whole."""
    content = path.read_bytes()
    assert content == content[:1] * SIZE, f"{path} is not whole: {len(content)} bytes"
    return content[0]


def files_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


# A process without torch, which begins at once.
WRITER = f"""
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("atomic", {str(atomic.__file__)!r})
atomic = importlib.util.module_from_spec(spec)
spec.loader.exec_module(atomic)
path = Path(sys.argv[1])
previous = path.with_name(path.name + ".previous")
"""
WRITES_HALF_AND_WAITS = f"""
with atomic.replacing(path, previous=previous) as file:
    file.write(bytes([7]) * {SIZE // 2})
    file.flush()
    print("half", flush=True)
    sys.stdin.readline()
    file.write(bytes([7]) * {SIZE - SIZE // 2})
"""
KEEPS_AND_WAITS = f"""
keep = atomic._keep
def keep_and_wait(path, previous, spare):
    def stop(target):
        print("half", flush=True)
        sys.stdin.readline()
    type(spare).replace = lambda own, target: stop(target)
    keep(path, previous, spare)
atomic._keep = keep_and_wait
with atomic.replacing(path, previous=previous) as file:
    file.write(bytes([7]) * {SIZE})
"""
WRITES_MANY = f"""
for number in range(1, 60):
    with atomic.replacing(path, previous=previous) as file:
        file.write(bytes([number]) * {SIZE})
"""


def process(script: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER + script, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def waiting(script: str, path: Path) -> subprocess.Popen[str]:
    """A process that is in the middle of writing."""
    writer = process(script, path)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "half\n"
    return writer


def killed(writer: subprocess.Popen[str]) -> None:
    writer.kill()
    writer.communicate()


def test_before_and_after_every_change_of_a_name_a_whole_file_is_at_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "state"
    write(path, 1)
    looks: list[int] = []

    def looking(change: Any) -> Any:
        def wrapped(*args: Any, **options: Any) -> Any:
            looks.append(number_in(path))
            try:
                return change(*args, **options)
            finally:
                looks.append(number_in(path))

        return wrapped

    for owner, name in ((Path, "replace"), (Path, "rename"), (Path, "unlink"), (os, "link")):
        monkeypatch.setattr(owner, name, looking(getattr(owner, name)))
    write(path, 2)
    write(path, 3)
    assert sorted(set(looks)) == [1, 2, 3]
    assert looks == sorted(looks)


def test_a_watcher_finds_a_whole_checkpoint_at_every_look_while_another_saves(tmp_path: Path):
    path = tmp_path / "state"
    write_checkpoint(path, {"n": 0, "weights": torch.zeros(500)})
    problems: list[str] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if not path.exists():
                problems.append("absent")
            state = read_checkpoint(path)
            if not torch.equal(state["weights"], torch.full((500,), float(state["n"]))):
                problems.append("torn")

    with ThreadPoolExecutor(2) as threads:
        watchers = [threads.submit(watch) for _ in range(2)]
        for n in range(1, 150):
            write_checkpoint(path, {"n": n, "weights": torch.full((500,), float(n))})
        done.set()
        for watcher in watchers:
            watcher.result()
    assert problems == []


def test_writers_at_once_do_not_break_each_other(tmp_path: Path):
    path = tmp_path / "state"
    write(path, 1)
    writers = [process(WRITES_MANY, path) for _ in range(2)]
    looks = 0
    while any(writer.poll() is None for writer in writers):
        number_in(path)
        looks += 1
    assert [writer.wait() for writer in writers] == [0, 0]
    for writer in writers:
        writer.communicate()
    assert looks > 0
    assert number_in(path) == 59
    assert 1 <= number_in(previous_checkpoint(path)) <= 59
    assert files_in(tmp_path) == ["state", "state.previous"]


def test_threads_at_once_do_not_break_each_other(tmp_path: Path):
    path = tmp_path / "state"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: write(path, number), range(1, 81)))
    number_in(path)
    number_in(previous_checkpoint(path))
    assert files_in(tmp_path) == ["state", "state.previous"]


@pytest.mark.parametrize("script", [WRITES_HALF_AND_WAITS, KEEPS_AND_WAITS], ids=["while writing", "while keeping"])
def test_a_kill_leaves_the_old_file_and_the_next_writer_clears_what_it_left(tmp_path: Path, script: str):
    path = tmp_path / "state"
    write(path, 1)
    write(path, 2)
    killed(waiting(script, path))
    assert number_in(path) == 2
    assert len(files_in(tmp_path)) > 2
    write(path, 3)
    assert (number_in(path), number_in(previous_checkpoint(path))) == (3, 2)
    assert files_in(tmp_path) == ["state", "state.previous"]


def test_the_file_aside_of_a_living_writer_is_not_cleared(tmp_path: Path):
    path = tmp_path / "state"
    write(path, 1)
    writer = waiting(WRITES_HALF_AND_WAITS, path)
    write(path, 2)
    assert number_in(path) == 2
    writer.communicate("go on\n")
    assert writer.returncode == 0
    assert (number_in(path), number_in(previous_checkpoint(path))) == (7, 2)
    assert files_in(tmp_path) == ["state", "state.previous"]


def test_files_of_others_with_like_names_are_not_cleared(tmp_path: Path):
    others = [
        "state.notes.writing",
        "state.writing",
        "state2.12.writing",
        "state.12-ab.writing",
        "state.12.writing.bak",
    ]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / "state.12.writing").write_text("of an earlier version that was killed")
    write(tmp_path / "state", 1)
    assert files_in(tmp_path) == sorted(["state", *others])


def test_without_hard_links_the_file_before_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "link", _no_links)
    path = tmp_path / "state"
    for number in (1, 2, 3):
        write(path, number)
    assert (number_in(path), number_in(previous_checkpoint(path))) == (3, 2)
    assert files_in(tmp_path) == ["state", "state.previous"]


def test_without_hard_links_and_with_a_full_disk_everything_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "state"
    write(path, 1)
    write(path, 2)

    def fill(_: Path, target: Path) -> None:
        target.write_bytes(b"some")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", _no_links)
    monkeypatch.setattr(shutil, "copyfile", fill)
    with pytest.raises(OSError, match=r"could not write .*state: No space left.*before is kept"):
        write(path, 3)
    assert (number_in(path), number_in(previous_checkpoint(path))) == (2, 1)
    assert files_in(tmp_path) == ["state", "state.previous"]


def _no_links(*_: Any) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_without_locks_files_are_written_and_none_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / "state.12.writing").write_text("of a writer that may live")
    write(tmp_path / "state", 1)
    assert number_in(tmp_path / "state") == 1
    assert files_in(tmp_path) == ["state", "state.12.writing"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_an_error_inside_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path, error: type[BaseException]):
    path = tmp_path / "state"
    write(path, 1)

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert number_in(path) == 1
    assert files_in(tmp_path) == ["state"]


def test_a_full_disk_keeps_the_number_of_the_error(tmp_path: Path):
    with pytest.raises(OSError, match="No space left") as caught, replacing(tmp_path / "state"):
        raise OSError(28, "No space left on device")
    assert caught.value.errno == 28


def test_a_folder_at_the_path_is_refused_and_stays(tmp_path: Path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "thesis").write_text("years of work")
    with pytest.raises(OSError, match=r"could not write .*state"):
        write(tmp_path / "state", 1)
    assert (tmp_path / "state" / "thesis").read_text() == "years of work"
    assert files_in(tmp_path) == ["state"]


def test_a_file_has_the_rights_that_new_files_of_the_user_have(tmp_path: Path):
    (tmp_path / "plain").touch()
    write(tmp_path / "state", 1)
    assert (tmp_path / "state").stat().st_mode == (tmp_path / "plain").stat().st_mode
