"""Files that are replaced in one step: at every instant a whole one is at the path.

A writer writes aside, to a file of its own that it holds a lock on, and renames it. The lock ends with the writer. A
file aside without a lock belongs to a killed writer, and the next writer clears it.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_ASIDE = re.compile(r"\.\d+(?:-[0-9a-f]{16})?(\.previous)?\.writing")  # what is added to the name of the file


@contextmanager
def replacing(path: Path, *, previous: Path | None = None) -> Iterator[BinaryIO]:
    """Context manager: give a file to write to, which then takes the place of the one at `path`.

    At every instant the file at `path` is the old one or the new one, whole. An error, also one of the caller's own,
    leaves the old one and nothing beside it. Any number of threads and processes may write to one path: the last to
    end stays. An OSError names the path and says why.

    Args:
        previous: where the file that is at `path` now is kept.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_dead_writers(path)
        aside, file = _opened_aside(path)
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if previous is not None:
                _keep(path, previous, _spare(aside))
            aside.replace(path)
        finally:
            # The lock ends last: until then no other writer takes these files for those of a dead one.
            _spare(aside).unlink(missing_ok=True)
            aside.unlink(missing_ok=True)
            file.close()
    except OSError as error:
        reason = f"could not write {path}: {error.strerror or error}; what was there before is kept"
        raise OSError(error.errno, reason) from error
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _opened_aside(path: Path) -> tuple[Path, BinaryIO]:
    """Return a new file beside `path`, open and locked."""
    while True:
        aside = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(8)}.writing")
        file = aside.open("xb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another writer came before the lock and clears the file
            file.close()
            continue
        except OSError:  # a file system without locks, where nothing is cleared
            return aside, file
        if aside.exists():
            return aside, file
        file.close()  # cleared before the lock


def _spare(aside: Path) -> Path:
    """Return a second name of a writer's own, for the file that it keeps."""
    return aside.with_name(f"{aside.name.removesuffix('.writing')}.previous.writing")


def _keep(path: Path, previous: Path, spare: Path) -> None:
    """Put the file at `path`, if there is one, also at `previous`, in one step."""
    if not path.exists():
        return
    try:
        os.link(path, spare)
    except OSError:  # a file system without hard links
        shutil.copyfile(path, spare)
        with spare.open("rb") as copy:
            os.fsync(copy.fileno())
    spare.replace(previous)


def _clear_dead_writers(path: Path) -> None:
    """Remove what writers to `path` have left that were killed."""
    for name in [beside.name for beside in path.parent.iterdir()]:
        found = _ASIDE.fullmatch(name.removeprefix(path.name)) if name.startswith(path.name) else None
        if found:
            own_name = name.removesuffix(".previous.writing") + ".writing" if found[1] else name
            _clear_if_dead(path.with_name(own_name))


def _clear_if_dead(aside: Path) -> None:
    try:
        file = aside.open("r+b")
    except FileNotFoundError:  # it ended, or was killed after its last step
        _spare(aside).unlink(missing_ok=True)
        return
    except OSError:  # of another user, say, who will clear it
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held by a living writer, or a file system without locks
            return
        _spare(aside).unlink(missing_ok=True)
        aside.unlink(missing_ok=True)
