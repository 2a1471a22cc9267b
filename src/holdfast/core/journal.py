"""An append-only journal: what is acknowledged is on disk, whatever happens then.

A journal is a folder of segments. A segment is a file of records, each with its length, its number and a checksum: a
record that a crash cut short is told from a whole one. A record also says which number was synced when it was
written. Damage that a crash can have done lies behind what was synced, and is cut off. Any other damage is an error.
Segments are deleted when a checkpoint holds what they say.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from holdfast.core.atomic import sync_folder

MAGIC = b"HFJ1"
ENDING = ".journal"
LOCK = "lock"
_HEAD = struct.Struct("<4sIQQI")  # magic, length of the content, number, last number synced before, checksum
MAX_RECORD = 2**31  # bytes of one record


class CorruptJournal(ValueError):
    """A journal that is damaged where a crash cannot have damaged it; the message names file and place."""


class JournalBusy(RuntimeError):
    """Another process writes this journal now."""


@dataclass(frozen=True)
class Record:
    """A whole record: its number, from 1 on without gaps, and its content."""

    number: int
    content: bytes


class Journal:
    """Records in a folder, appended durably.

    One process at a time may hold a journal. Several threads may append: records that wait for the disk together are
    synced together (group commit). A record cut short by a crash, which was never acknowledged, is cut off when the
    journal is opened.

    Args:
        folder: of the segments; made if it is not there.
        segment_bytes: a segment that is larger gets no more records.
        max_bytes: of all segments; an append beyond raises OSError before anything is written. None: no bound.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Journal(folder) as journal:
        ...         _ = journal.append(b"first"), journal.append(b"second")
        ...     with Journal(folder) as again:
        ...         [record.content for record in again.records(after=1)]
        [b'second']
    """

    def __init__(self, folder: str | Path, *, segment_bytes: int = 64 * 2**20, max_bytes: int | None = None) -> None:
        self.folder = Path(folder)
        self.segment_bytes = segment_bytes
        self.max_bytes = max_bytes
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._held = (self.folder / LOCK).open("w")
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._held.close()
            raise JournalBusy(f"{self.folder} is the journal of another process: give each learner its own") from None
        self._file: FileIO | None = None
        self._failed: BaseException | None = None
        try:
            self.last = self._repair()  # number of the last record
        except BaseException:
            self._held.close()
            raise
        self._synced = self.last
        self.nbytes = self._n_bytes()  # of all segments

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def append(self, content: bytes) -> int:
        """Write a record and wait until it is on disk; returns its number.

        A full disk raises OSError, and the journal is as it was.
        """
        number = self.write(content)
        self.sync(number)
        return number

    def write(self, content: bytes) -> int:
        """Write a record without waiting for the disk; returns its number, which `sync` takes."""
        if len(content) > MAX_RECORD:
            raise ValueError(f"a record of {len(content):,} bytes is too large: give at most {MAX_RECORD:,}")
        with self._write_lock:
            self._check_usable()
            number = self.last + 1
            synced = self._synced
            head = _HEAD.pack(MAGIC, len(content), number, synced, _checksum(number, synced, content))
            self._make_room(len(head) + len(content))
            file = self._open_segment(number)
            begin = file.tell()
            try:
                _write_all(file, head + content)
                vars(self).update(last=number, nbytes=self.nbytes + len(head) + len(content))  # at one instant
            except BaseException:
                self._undo_write(file, begin)
                raise
            return number

    def sync(self, number: int) -> None:
        """Wait until the record with this number is on disk; threads that wait together share one sync."""
        with self._sync_lock:
            if number <= self._synced:
                return
            with self._write_lock:
                self._check_usable()
                file, last = self._file, self.last
            assert file is not None
            try:
                os.fsync(file.fileno())
            except OSError as error:  # after a failed sync nobody knows what is on disk
                self._failed = error
                raise
            self._synced = last

    def records(self, after: int = 0) -> Iterator[Record]:
        """Yield the records with numbers above `after`, in order; CorruptJournal if one of them is missing."""
        expected = None
        for path in self._segments():
            for record, _ in _read_segment(path):
                if expected is not None and record.number != expected:
                    raise CorruptJournal(f"{path} goes on with record {record.number}, expected {expected}")
                expected = record.number + 1
                if record.number > after:
                    yield record

    def first(self) -> int:
        """Return the number of the first record that is still there, or would come next."""
        segments = self._segments()
        return _first_number(segments[0]) if segments else self.last + 1

    def forget(self, up_to: int) -> None:
        """Delete segments whose records all have numbers up to `up_to`, which a checkpoint holds."""
        with self._sync_lock, self._write_lock:
            segments = self._segments()
            ends = [*(_first_number(path) - 1 for path in segments[1:]), self.last][
                : len(segments)
            ]  # none of no records
            for path, end in zip(segments, ends, strict=True):
                if end > up_to:
                    break
                if path == segments[-1]:
                    self._begin_segment(self.last + 1)  # so that the number is known after everything is deleted
                path.unlink()
            sync_folder(self.folder)
            self.nbytes = self._n_bytes()

    def close(self) -> None:
        """Sync, and let go of the folder."""
        with self._sync_lock, self._write_lock:
            if self._file is not None:
                if self._failed is None:
                    os.fsync(self._file.fileno())
                self._file.close()
                self._file = None
            self._held.close()

    @property
    def is_broken(self) -> bool:
        """Tell if the disk failed so that nobody knows what is on it: open the journal again."""
        return self._failed is not None

    def _check_usable(self) -> None:
        if self._held.closed:
            raise ValueError(f"the journal {self.folder} was closed: open it again")
        if self._failed is not None:
            raise OSError(f"the journal {self.folder} could not be synced ({self._failed}): open it again")

    def _n_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._segments())

    def _segments(self) -> list[Path]:
        return sorted(self.folder.glob(f"[0-9]*{ENDING}"))

    def _open_segment(self, number: int) -> FileIO:
        if self._file is None or self._file.tell() >= self.segment_bytes:
            self._begin_segment(number)
        assert self._file is not None
        return self._file

    def _begin_segment(self, number: int) -> None:
        """Begin the file that record `number` comes into."""
        if self._file is not None:
            os.fsync(self._file.fileno())  # only the last segment may be cut short
            self._file.close()
        self._file = (self.folder / f"{number:020d}{ENDING}").open("ab", buffering=0)
        sync_folder(self.folder)

    def _make_room(self, n_bytes: int) -> None:
        if self.max_bytes is not None and self.nbytes + n_bytes > self.max_bytes:
            raise OSError(
                f"the journal {self.folder} holds {self.nbytes:,} bytes and may hold {self.max_bytes:,}: "
                "save the learner, which empties it, or give it a larger bound"
            )

    def _undo_write(self, file: FileIO, begin: int) -> None:
        """Cut off half a record; if even that fails, nothing more can be appended."""
        try:
            os.ftruncate(file.fileno(), begin)
            file.seek(begin)
        except OSError as error:
            self._failed = error

    def _repair(self) -> int:
        """Cut off a record that a crash cut short; returns the number of the last whole one."""
        segments = self._segments()
        if not segments:
            return 0
        last, end = _first_number(segments[-1]) - 1, 0
        for record, place in _read_segment(segments[-1], may_be_cut_short=True):
            last, end = record.number, place
        with segments[-1].open("r+b") as file:
            if file.seek(0, os.SEEK_END) > end:
                file.truncate(end)
                os.fsync(file.fileno())
        self._file = segments[-1].open("ab", buffering=0)
        return last


def _read_segment(path: Path, *, may_be_cut_short: bool = False) -> Iterator[tuple[Record, int]]:
    """Yield the records of a file, each with the place where it ends.

    Args:
        may_be_cut_short: end before the first record that is not whole, if it may never have been acknowledged.
    """
    number, size = _first_number(path), path.stat().st_size
    with path.open("rb") as file:
        while (begin := file.tell()) < size:
            content = _whole(file.read(_HEAD.size), file, number)
            if content is None:
                if may_be_cut_short and not _was_synced(path, begin, number):
                    return
                raise CorruptJournal(f"{path} is damaged at byte {begin}, where record {number} should be")
            yield Record(number, content), file.tell()
            number += 1


def _whole(head: bytes, file: BinaryIO, number: int) -> bytes | None:
    """Read the content of record `number` behind its head; None if it is not whole."""
    if len(head) < _HEAD.size:
        return None
    magic, length, found, synced, checksum = _HEAD.unpack(head)
    if magic != MAGIC or found != number or length > os.fstat(file.fileno()).st_size - file.tell():
        return None
    content = file.read(length)
    return content if _checksum(number, synced, content) == checksum else None


def _was_synced(path: Path, begin: int, number: int) -> bool:
    """Tell whether a whole record behind `begin` says that record `number` was synced before."""
    content = path.read_bytes()
    at = content.find(MAGIC, begin + 1)
    while at >= 0:
        if at + _HEAD.size <= len(content):
            _, length, found, synced, checksum = _HEAD.unpack_from(content, at)
            body = content[at + _HEAD.size : at + _HEAD.size + length]
            if synced >= number and len(body) == length and _checksum(found, synced, body) == checksum:
                return True
        at = content.find(MAGIC, at + 1)
    return False


def _write_all(file: FileIO, content: bytes) -> None:
    """Write everything. A buffer between would keep what a full disk did not take, and write it later."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _checksum(number: int, synced: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack("<QQ", number, synced)))


def _first_number(path: Path) -> int:
    try:
        return int(path.stem)
    except ValueError as error:
        raise CorruptJournal(f"{path} is no segment of a journal: its name is no number") from error
