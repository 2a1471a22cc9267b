from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import threading
from pathlib import Path

import pytest

from holdfast.core.journal import CorruptJournal, Journal, JournalBusy

N_KILLS = 60


def contents(folder: Path, after: int = 0) -> list[bytes]:
    with Journal(folder) as journal:
        return [record.content for record in journal.records(after)]


def test_records_come_back_in_order_over_segments_and_openings(tmp_path: Path):
    written = []
    for opening in range(3):
        with Journal(tmp_path, segment_bytes=100) as journal:
            for i in range(7):
                written.append(f"{opening}-{i}".encode() * (i + 1))
                assert journal.append(written[-1]) == len(written)
    assert len(list(tmp_path.glob("*.journal"))) > 3
    assert contents(tmp_path) == written
    assert contents(tmp_path, after=20) == written[20:]


def test_an_empty_record_is_a_record(tmp_path: Path):
    with Journal(tmp_path) as journal:
        journal.append(b"")
    assert contents(tmp_path) == [b""]


def test_what_a_checkpoint_holds_is_deleted_and_numbers_go_on(tmp_path: Path):
    with Journal(tmp_path, segment_bytes=50) as journal:
        for i in range(10):
            journal.append(bytes([i]) * 20)
        journal.forget(up_to=4)
        assert [r.number for r in journal.records()] == [5, 6, 7, 8, 9, 10]
        journal.forget(up_to=10)
        assert list(journal.records()) == []
        assert journal.nbytes == 0
    with Journal(tmp_path) as journal:
        assert journal.append(b"next") == 11


def test_a_bound_on_the_disk_is_kept_and_leaves_the_journal_as_it_was(tmp_path: Path):
    with Journal(tmp_path, max_bytes=200) as journal:
        journal.append(b"x" * 100)
        with pytest.raises(OSError, match="may hold 200"):
            journal.append(b"y" * 100)
        journal.forget(up_to=1)
        assert journal.append(b"z" * 100) == 2
    assert contents(tmp_path) == [b"z" * 100]


@pytest.mark.parametrize("room", [0, 10, 99])
def test_a_full_disk_leaves_the_journal_as_it_was_and_room_lets_it_go_on(tmp_path: Path, room: int):
    with Journal(tmp_path) as journal:
        journal.append(b"before")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.nbytes + room, limits[1]))  # in the midst of a record
        try:
            with pytest.raises(OSError, match="too large"):
                journal.append(b"x" * 100)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert journal.append(b"after") == 2
    assert contents(tmp_path) == [b"before", b"after"]


def test_a_journal_has_one_process(tmp_path: Path):
    with Journal(tmp_path), pytest.raises(JournalBusy, match="give each learner its own"):
        Journal(tmp_path)
    Journal(tmp_path).close()


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_tail_cut_at_any_byte_is_cut_off(tmp_path: Path, cut: int):
    with Journal(tmp_path) as journal:
        journal.append(b"whole")
        journal.write(b"tail" * 9)
    (segment,) = tmp_path.glob("*.journal")
    content = segment.read_bytes()
    segment.write_bytes(content[:-cut])
    assert contents(tmp_path) == [b"whole"]
    with Journal(tmp_path) as journal:
        assert journal.append(b"again") == 2
    assert contents(tmp_path) == [b"whole", b"again"]


def test_damage_to_what_was_acknowledged_is_an_error_at_every_byte(tmp_path: Path):
    with Journal(tmp_path) as journal:
        journal.append(b"first")
        end_of_first = journal.nbytes
        journal.append(b"second")
    (segment,) = tmp_path.glob("*.journal")
    whole = segment.read_bytes()
    for place in range(end_of_first):
        damaged = bytearray(whole)
        damaged[place] ^= 0x40
        segment.write_bytes(damaged)
        with pytest.raises(CorruptJournal, match="damaged at byte 0"):
            contents(tmp_path)
    segment.write_bytes(whole)
    assert contents(tmp_path) == [b"first", b"second"]


def test_records_that_were_never_synced_may_be_lost_in_any_order(tmp_path: Path):
    with Journal(tmp_path) as journal:
        journal.append(b"synced")
        begin = journal.nbytes
        journal.write(b"torn")
        end = journal.nbytes
        journal.write(b"whole, but nobody was told")
    (segment,) = tmp_path.glob("*.journal")
    content = bytearray(segment.read_bytes())
    content[begin:end] = bytes(end - begin)  # the disk kept the later one only
    segment.write_bytes(content)
    assert contents(tmp_path) == [b"synced"]


def test_a_missing_segment_is_an_error(tmp_path: Path):
    with Journal(tmp_path, segment_bytes=1) as journal:
        for i in range(3):
            journal.append(bytes([i]))
    sorted(tmp_path.glob("*.journal"))[1].unlink()
    with Journal(tmp_path) as journal, pytest.raises(CorruptJournal, match="goes on with record 3, expected 2"):
        list(journal.records())


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Journal(tmp_path) as journal:
        journal.append(b"kept")
        whole = journal._file

        class Full:
            def __getattr__(self, name: str) -> object:
                return getattr(whole, name)

            def write(self, content: bytes) -> int:
                whole.write(content[: len(content) // 2])
                whole.flush()
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(journal, "_file", Full())
        with pytest.raises(OSError, match="No space left"):
            journal.append(b"half of this")
        monkeypatch.setattr(journal, "_file", whole)
        assert journal.append(b"after") == 2
    assert contents(tmp_path) == [b"kept", b"after"]


def test_a_failed_sync_ends_the_journal_until_it_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    journal = Journal(tmp_path)
    journal.append(b"kept")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(OSError, match="Input/output error"):
            journal.append(b"unknown")
    with pytest.raises(OSError, match="open it again"):
        journal.append(b"more")
    journal.close()
    assert contents(tmp_path)[0] == b"kept"


def test_threads_that_append_at_once_are_all_on_disk_and_share_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    syncs, real = [], os.fsync

    def counted(handle: int) -> None:
        syncs.append(handle)
        real(handle)

    with Journal(tmp_path) as journal:
        journal.append(b"begin")
        monkeypatch.setattr(os, "fsync", counted)
        journal._sync_lock.acquire()  # as if the disk were busy until all have written
        threads = [threading.Thread(target=journal.append, args=(f"{i}".encode(),)) for i in range(8)]
        for thread in threads:
            thread.start()
        while journal.last < 9:
            os.sched_yield()
        journal._sync_lock.release()
        for thread in threads:
            thread.join()
        assert len(syncs) == 1
        monkeypatch.undo()
    assert sorted(contents(tmp_path)) == sorted([b"begin", *(f"{i}".encode() for i in range(8))])


def test_nothing_acknowledged_is_lost_to_kills_at_random_instants(tmp_path: Path):
    """A child appends and acknowledges each record through a pipe; it is killed, and the next child goes on."""
    rng = random.Random(1)
    acknowledged = 0
    for _ in range(N_KILLS):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                journal = Journal(tmp_path, segment_bytes=2_000)
                while True:
                    number = journal.append(str(journal.last + 1).encode() * 20)
                    os.write(write_end, number.to_bytes(8, "little"))
                    if number % 50 == 0:
                        journal.forget(number - 30)
            os._exit(1)
        os.close(write_end)
        wanted = rng.randrange(1, 40)
        with os.fdopen(read_end, "rb") as pipe:
            for _ in range(wanted):
                acknowledged = int.from_bytes(pipe.read(8), "little")
            os.kill(child, signal.SIGKILL)
            while last := pipe.read(8):
                acknowledged = int.from_bytes(last, "little")
        os.waitpid(child, 0)
        with Journal(tmp_path) as journal:
            records = list(journal.records())
            assert journal.last >= acknowledged
            assert [r.number for r in records] == list(range(journal.first(), journal.last + 1))
            assert all(record.content == str(record.number).encode() * 20 for record in records)
