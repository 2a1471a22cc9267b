"""Downloads from a real server on this machine that misbehaves on request."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import http.server
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.data import download as download_module
from holdfast.data.catalogue import CATALOGUE, Archive, DataSet, LabelledRecords, UnknownDataSet
from holdfast.data.download import IDLE_ATTEMPTS, DownloadError, download, fetch

CONTENT = bytes(range(256)) * 8


@dataclass
class Site:
    """What the server holds, how it behaves, and what it was asked.

    Attributes:
        etag, modified: what it says of its files, or None to say nothing.
        ranges: whether it gives a part when asked for one.
        honest: whether it looks at If-Range before it does.
        shift: by how many bytes the part that it gives is off.
        states_length: whether it says how long a file is.
        cuts: for each coming answer, after how many bytes the connection ends, or None.
        resets: whether a cut is a reset instead of an orderly end.
        refusals: for each coming answer, the status given instead of a file.
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    etag: str | None = '"one"'
    modified: str | None = None
    ranges: bool = True
    honest: bool = True
    shift: int = 0
    states_length: bool = True
    cuts: list[int | None] = field(default_factory=list)
    resets: bool = False
    refusals: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # path and range
    headers: list[dict[str, str]] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"{self.address}/{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        site, path = self.server.site, self.path.lstrip("/")
        wanted = self.headers.get("Range")
        site.asked.append(path if wanted is None else f"{path} {wanted}")
        site.headers.append(dict(self.headers.items()))
        if site.refusals:
            self.send_error(site.refusals.pop(0))
        elif path in site.redirects:
            self.send_response(302)
            self.send_header("Location", site.redirects[path])
            self.end_headers()
        elif path not in site.files:
            self.send_error(404)
        else:
            self.give(site, site.files[path], wanted)

    def give(self, site: Site, content: bytes, wanted: str | None) -> None:
        condition = self.headers.get("If-Range")
        same = not site.honest or condition in (None, site.etag, site.modified)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and site.ranges and same else 0
        start += site.shift if start else 0
        if start >= len(content) > 0:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if site.states_length:
            self.send_header("Content-Length", str(len(content) - start))
        for name, value in (("ETag", site.etag), ("Last-Modified", site.modified)):
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        cut = site.cuts.pop(0) if site.cuts else None
        self.wfile.write(content[start : None if cut is None else start + cut])
        if cut is not None and site.resets:
            self.wfile.flush()
            linger = struct.pack("ii", 1, 0)  # so that closing resets the connection
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    site: Site


@contextlib.contextmanager
def serving() -> Iterator[Site]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.site = Site(f"http://127.0.0.1:{server.server_port}", {"file": CONTENT})
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
        thread.start()
        try:
            yield server.site
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _here_and_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy stands between, and nobody waits for a disk that others keep busy."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def at_once(_seconds: float) -> None:
    """Waits for nothing."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# One file


def test_a_file_comes_whole_and_leaves_nothing_beside_it(site: Site, tmp_path: Path) -> None:
    fetch([site.url("file")], tmp_path / "got", size=len(CONTENT), checksum=sha256(CONTENT), wait=at_once)
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert names(tmp_path) == ["got"]
    assert site.headers[0]["User-Agent"].startswith("holdfast/")


def test_an_empty_file_comes_too(site: Site, tmp_path: Path) -> None:
    site.files["file"] = b""
    fetch([site.url("file")], tmp_path / "got", size=0, checksum=sha256(b""), wait=at_once)
    assert (tmp_path / "got").read_bytes() == b""


def test_progress_runs_through_fetching_and_checking(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    fetch(
        [site.url("file")],
        tmp_path / "got",
        checksum=sha256(CONTENT),
        progress=lambda *now: seen.append(now),
    )
    assert seen[0] == ("fetching got", 0, 2048)
    assert seen[-2:] == [("fetching got", 2048, 2048), ("checking got", 2048, 2048)]


@pytest.mark.parametrize("validator", [{"etag": '"v1"'}, {"etag": None, "modified": "Mon, 01 Jan 2024 00:00:00 GMT"}])
def test_a_cut_connection_is_continued_from_the_last_byte(
    site: Site, tmp_path: Path, validator: dict[str, str | None]
) -> None:
    for name, value in validator.items():
        setattr(site, name, value)
    site.cuts = [1000, 500]
    fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert site.asked == ["file", "file bytes=1000-", "file bytes=1500-"]
    assert [headers.get("If-Range") for headers in site.headers] == [None, *[site.etag or site.modified] * 2]


def test_a_weak_tag_is_not_sent_as_a_condition(site: Site, tmp_path: Path) -> None:
    site.etag, site.cuts = 'W/"v1"', [1000]
    fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert site.asked[-1] == "file bytes=1000-"
    assert "If-Range" not in site.headers[-1]


def test_a_connection_that_is_reset_is_taken_up_again(site: Site, tmp_path: Path) -> None:
    site.cuts, site.resets = [700, 700], True
    fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert len(site.asked) == 3


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(site: Site, tmp_path: Path) -> None:
    site.cuts, site.refusals = [1200], []
    waits: list[float] = []

    def refuse_from_now_on(seconds: float) -> None:
        waits.append(seconds)
        site.refusals = [503]

    with pytest.raises(DownloadError, match="what has come is kept, the same command continues"):
        fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=refuse_from_now_on)
    assert (tmp_path / "got.part").read_bytes() == CONTENT[:1200]
    assert not (tmp_path / "got").exists()
    site.refusals, site.asked = [], []
    fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert site.asked == ["file bytes=1200-"]
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_attempts_are_bounded_and_their_waits_grow(site: Site, tmp_path: Path) -> None:
    site.refusals = [503] * 100
    waits: list[float] = []
    with pytest.raises(DownloadError, match=f"did not come in {IDLE_ATTEMPTS} attempts .answered 503"):
        fetch([site.url("file")], tmp_path / "got", wait=waits.append)
    assert len(site.asked) == IDLE_ATTEMPTS
    assert waits == [2, 4, 8, 16]


def test_any_number_of_cuts_is_survived_as_long_as_each_attempt_brings_something(site: Site, tmp_path: Path) -> None:
    site.cuts = [100] * 20
    fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert len(site.asked) == 21


def test_a_server_that_gives_no_parts_gives_the_whole_anew(site: Site, tmp_path: Path) -> None:
    site.cuts, site.ranges = [1000], False
    fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert (tmp_path / "got").read_bytes() == CONTENT
    assert site.asked == ["file", "file bytes=1000-"]


def test_a_server_that_gives_no_parts_and_always_cuts_is_given_up(site: Site, tmp_path: Path) -> None:
    site.cuts, site.ranges = [1000] * 100, False
    with pytest.raises(DownloadError, match="ended after 1,000 of 2,048 bytes"):
        fetch([site.url("file")], tmp_path / "got", wait=at_once)
    assert len(site.asked) == 1 + IDLE_ATTEMPTS


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"etag": '"one"'}, {"etag": '"two"'}),
        (
            {"etag": None, "modified": "Mon, 01 Jan 2024 00:00:00 GMT"},
            {"etag": None, "modified": "Tue, 02 Jan 2024 00:00:00 GMT"},
        ),
        ({"etag": None}, {"etag": None}),  # then only the size can tell
        ({"etag": '"one"'}, {"etag": '"two"', "honest": False}),
    ],
    ids=["tag", "date", "size", "a server that ignores If-Range"],
)
@pytest.mark.parametrize("new", [b"new" * 1000, b"tiny"], ids=["longer", "shorter than the part"])
def test_a_file_that_changed_meanwhile_is_never_a_mixture(
    site: Site, tmp_path: Path, before: dict[str, object], after: dict[str, object], new: bytes
) -> None:
    for name, value in before.items():
        setattr(site, name, value)
    site.cuts = [1000]

    def change(_seconds: float) -> None:
        site.files["file"] = new
        for name, value in after.items():
            setattr(site, name, value)

    fetch([site.url("file")], tmp_path / "got", wait=change)
    assert (tmp_path / "got").read_bytes() == new


def test_a_part_that_was_not_asked_for_is_not_appended(site: Site, tmp_path: Path) -> None:
    site.cuts, site.shift = [1000], 10
    fetch([site.url("file")], tmp_path / "got", wait=at_once)
    assert site.asked == ["file", "file bytes=1000-", "file"]
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_a_part_without_a_readable_note_is_begun_anew(site: Site, tmp_path: Path) -> None:
    (tmp_path / "got.part").write_bytes(b"from who knows where" * 100)
    (tmp_path / "got.part.json").write_text('{"size": 20')
    site.cuts = [200] * 8  # what comes must count as new, though it is less than the old part
    fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert site.asked[:2] == ["file", "file bytes=200-"]
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_a_part_that_was_complete_is_only_checked(site: Site, tmp_path: Path) -> None:
    (tmp_path / "got.part").write_bytes(CONTENT)
    note = {"size": len(CONTENT), "etag": '"one"', "modified": None}
    (tmp_path / "got.part.json").write_text(json.dumps(note))
    fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert site.asked == []
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_a_file_that_was_fetched_before_is_checked_without_asking(site: Site, tmp_path: Path) -> None:
    (tmp_path / "got").write_bytes(CONTENT)
    fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert site.asked == []
    (tmp_path / "got").write_bytes(b"spoilt")
    with pytest.raises(DownloadError, match="removed, the same command fetches it anew"):
        fetch([site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_a_wrong_checksum_is_told_and_the_part_removed(site: Site, tmp_path: Path, kind: str) -> None:
    found, expected = hashlib.new(kind, CONTENT).hexdigest(), hashlib.new(kind, b"else").hexdigest()
    with pytest.raises(DownloadError, match=f"got has {kind} {found}, expected {expected}: removed"):
        fetch([site.url("file")], tmp_path / "got", checksum=f"{kind}:{expected}", wait=at_once)
    assert names(tmp_path) == []


def test_the_next_mirror_is_asked_where_the_first_has_nothing(site: Site, tmp_path: Path) -> None:
    waits: list[float] = []
    fetch([site.url("gone"), site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=waits.append)
    assert site.asked == ["gone", "file"]
    assert waits == []
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_the_next_mirror_is_asked_where_the_first_does_not_answer(site: Site, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and never listens
        deaf = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
        fetch([deaf, site.url("file")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_the_error_names_every_mirror_that_has_nothing(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DownloadError) as caught:
        fetch([site.url("gone"), site.url("lost")], tmp_path / "got", wait=at_once)
    assert f"{site.url('gone')} answered 404" in str(caught.value)
    assert f"{site.url('lost')} answered 404" in str(caught.value)


def test_a_server_that_accepts_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(download_module, "SECONDS_TO_ANSWER", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(DownloadError, match="timed out"):
            fetch([url], tmp_path / "got", wait=at_once)


def test_a_file_of_another_size_than_published_is_not_even_begun(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="offers 2,048 bytes, expected 1,000"):
        fetch([site.url("file")], tmp_path / "got", size=1000, wait=at_once)
    assert names(tmp_path) == []


def test_a_file_whose_length_nobody_states_is_counted(site: Site, tmp_path: Path) -> None:
    site.states_length = False
    fetch([site.url("file")], tmp_path / "got", size=2048, wait=at_once)
    assert (tmp_path / "got").read_bytes() == CONTENT
    with pytest.raises(DownloadError, match="gave 2,048 bytes, expected 3,000"):
        fetch([site.url("file")], tmp_path / "other", size=3000, wait=at_once)
    assert names(tmp_path) == ["got"]


@pytest.mark.parametrize("bound", [{"size": 1000}, {"at_most": 1000}])
def test_a_server_that_gives_more_than_expected_is_left_after_the_first_block(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: dict[str, int]
) -> None:
    monkeypatch.setattr(download_module, "BLOCK", 2048)
    site.files["file"], site.states_length = bytes(8192), False
    seen: list[int] = []
    with pytest.raises(DownloadError, match="gave more than 1,000 bytes, expected no more"):
        fetch(
            [site.url("file")], tmp_path / "file", progress=lambda _, done, __: seen.append(done), wait=at_once, **bound
        )
    assert seen[-1] == 2048
    assert names(tmp_path) == []


def test_a_file_that_states_more_bytes_than_expected_is_not_begun(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="offers 2,048 bytes, expected at most 1,000"):
        fetch([site.url("file")], tmp_path / "file", at_most=1000, wait=at_once)
    assert names(tmp_path) == []


def test_a_redirection_is_followed_and_continued(site: Site, tmp_path: Path) -> None:
    site.redirects = {"page": site.url("file")}
    site.cuts = [1000]
    fetch([site.url("page")], tmp_path / "got", checksum=sha256(CONTENT), wait=at_once)
    assert site.asked == ["page", "file", "page bytes=1000-", "file bytes=1000-"]
    assert (tmp_path / "got").read_bytes() == CONTENT


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/file", "file:///etc/hostname"])
def test_only_http_is_spoken(site: Site, tmp_path: Path, url: str) -> None:
    with pytest.raises(DownloadError, match="is not an http or https address"):
        fetch([url], tmp_path / "got", wait=at_once)
    site.redirects = {"trap": url}
    with pytest.raises(DownloadError, match="cannot be had"):
        fetch([site.url("trap")], tmp_path / "got", wait=at_once)
    assert names(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_in_one_sentence_and_keeps_the_part(site: Site, tmp_path: Path) -> None:
    (tmp_path / "got.part").symlink_to("/dev/full")
    (tmp_path / "got.part.json").write_text(json.dumps({"size": 2048, "etag": '"one"', "modified": None}))
    with pytest.raises(DownloadError, match=r"no room left for .*got\.part: make some; what has come is kept"):
        fetch([site.url("file")], tmp_path / "got", wait=at_once)
    assert names(tmp_path) == ["got.part", "got.part.json"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.lists(st.none() | st.integers(1, 3000), max_size=4),
    ranges=st.booleans(),
    etag=st.sampled_from(['"a"', 'W/"a"', None]),
)
def test_wherever_the_connection_is_cut_the_file_is_the_same(
    cuts: list[int | None], ranges: bool, etag: str | None
) -> None:
    with serving() as site, tempfile.TemporaryDirectory() as folder:
        site.cuts, site.ranges, site.etag = list(cuts), ranges, etag
        fetch([site.url("file")], Path(folder, "got"), checksum=sha256(CONTENT), wait=at_once)
        assert Path(folder, "got").read_bytes() == CONTENT


# A whole data set

RECORDS = bytes([0, 0]) + bytes(3072)  # one record of class 0
TRAIN = "small-records/train.bin"


def tar_of(contents: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def zip_of(contents: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return file.getvalue()


PACK: dict[str, Callable[[dict[str, bytes]], bytes]] = {"tar": tar_of, "zip": zip_of}


def small(site: Site, archive: bytes, kind: str = "tar", **changes: object) -> DataSet:
    """A data set of one record, of which the site offers `archive`."""
    site.files["small.archive"] = archive
    offered = Archive("small.archive", (site.url("small.archive"),), len(archive), sha256(archive), kind)  # type: ignore[arg-type]
    return replace(
        CATALOGUE["cifar100"],
        name="small",
        where="small-records",
        layout=LabelledRecords({"train.bin": 1}, n_classes=1),
        archives=(replace(offered, **changes),),  # type: ignore[arg-type]
    )


@pytest.fixture
def offer(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a small data set into the catalogue."""

    def offer(archive: bytes, kind: str = "tar", **changes: object) -> None:
        monkeypatch.setitem(CATALOGUE, "small", small(site, archive, kind, **changes))

    return offer


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_data_set_is_fetched_unpacked_and_nothing_else_is_left(
    offer: Callable[..., None], tmp_path: Path, kind: str
) -> None:
    offer(PACK[kind]({TRAIN: RECORDS, "attributes.txt": b"beside the set, as in CUB's archive"}), kind)
    assert download("small", tmp_path / "data") == "downloaded"
    assert (tmp_path / "data" / TRAIN).read_bytes() == RECORDS
    assert names(tmp_path / "data") == [".download", "small-records"]
    assert names(tmp_path / "data" / ".download") == ["small.lock"]


def test_the_bytes_are_on_disk_before_the_name(
    offer: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    for call in ("sync", "fsync"):
        monkeypatch.setattr(os, call, lambda *_: seen.append(names(tmp_path)))
    offer(tar_of({TRAIN: RECORDS}))
    download("small", tmp_path)
    archive, archive_name, unpacked, set_name = seen
    assert archive == archive_name == unpacked == [".download"]
    assert set_name == [".download", "small-records"]


def test_a_set_of_plain_files_is_put_into_its_folder(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site.files["train.bin"] = RECORDS
    plain = Archive("train.bin", (site.url("train.bin"),), len(RECORDS), sha256(RECORDS), "file")
    monkeypatch.setitem(CATALOGUE, "small", replace(small(site, b""), archives=(plain,)))
    assert download("small", tmp_path) == "downloaded"
    assert (tmp_path / TRAIN).read_bytes() == RECORDS


def test_a_set_that_is_there_is_left_alone_and_nobody_is_asked(
    site: Site, offer: Callable[..., None], tmp_path: Path
) -> None:
    offer(tar_of({TRAIN: RECORDS}))
    assert download("small", tmp_path) == "downloaded"
    site.asked.clear()
    assert download("small", tmp_path) == "already there"
    assert site.asked == []


def test_what_a_kill_left_of_a_finished_set_is_cleared_away(offer: Callable[..., None], tmp_path: Path) -> None:
    offer(tar_of({TRAIN: RECORDS}))
    (tmp_path / TRAIN).parent.mkdir()
    (tmp_path / TRAIN).write_bytes(RECORDS)
    (tmp_path / ".download" / "small").mkdir(parents=True)
    (tmp_path / ".download" / "small" / "small.archive").write_bytes(b"many bytes")
    assert download("small", tmp_path) == "already there"
    assert names(tmp_path / ".download") == ["small.lock"]


def test_an_incomplete_set_is_not_touched_and_nothing_is_fetched(
    site: Site, offer: Callable[..., None], tmp_path: Path
) -> None:
    offer(tar_of({TRAIN: RECORDS}))
    (tmp_path / TRAIN).parent.mkdir()
    (tmp_path / TRAIN).write_bytes(RECORDS[:-1])
    with pytest.raises(DownloadError, match=r"there but incomplete .train\.bin holds 3,073 bytes, expected 3,074"):
        download("small", tmp_path)
    assert (tmp_path / TRAIN).read_bytes() == RECORDS[:-1]
    assert site.asked == []


def link_in_tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo("small-records")
        member.type, member.linkname = tarfile.SYMTYPE, "../../../.."
        tar.addfile(member)
    return file.getvalue()


def link_in_zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        member = zipfile.ZipInfo("small-records")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "../../../..")
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "archive"),
    [
        ("tar", tar_of({TRAIN: RECORDS, "../evil": b"!"})),
        ("tar", tar_of({TRAIN: RECORDS, "small-records/../../evil": b"!"})),
        ("tar", link_in_tar()),
        ("zip", zip_of({TRAIN: RECORDS, "../evil": b"!"})),
        ("zip", zip_of({TRAIN: RECORDS, "small-records/../../evil": b"!"})),
        ("zip", zip_of({TRAIN: RECORDS, "..\\evil": b"!"})),
        ("zip", zip_of({TRAIN: RECORDS, "/evil": b"!"})),
        ("zip", zip_of({TRAIN: RECORDS, "C:\\evil": b"!"})),
        ("zip", link_in_zip()),
    ],
)
def test_an_archive_that_reaches_outside_its_folder_is_refused(
    offer: Callable[..., None], tmp_path: Path, kind: str, archive: bytes
) -> None:
    offer(archive, kind)
    with pytest.raises(DownloadError, match=r"small\.archive cannot be unpacked .*: removed"):
        download("small", tmp_path / "data")
    assert names(tmp_path / "data") == [".download"]
    assert list(tmp_path.rglob("*evil*")) == []
    assert names(tmp_path / "data" / ".download" / "small") == []


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_an_archive_that_holds_more_than_files_and_folders_is_refused(
    offer: Callable[..., None], tmp_path: Path, kind: bytes
) -> None:
    file = io.BytesIO(tar_of({TRAIN: RECORDS}))
    packed = io.BytesIO(gzip.decompress(file.getvalue()))
    with tarfile.open(fileobj=packed, mode="a") as tar:
        member = tarfile.TarInfo("small-records/other")
        member.type, member.linkname = kind, TRAIN
        tar.addfile(member)
    offer(packed.getvalue())
    with pytest.raises(DownloadError, match=r"cannot be unpacked \(it holds 'small-records/other', which is no file"):
        download("small", tmp_path)
    assert names(tmp_path / ".download" / "small") == []


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_bomb_is_not_unpacked(
    offer: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(download_module, "LEAST_UNPACKED", 2**20)
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(TRAIN, bytes(2**24))
    else:
        file.write(tar_of({TRAIN: bytes(2**24)}))
    offer(file.getvalue(), kind)
    with pytest.raises(
        DownloadError, match=r"cannot be unpacked \(it holds 16,777,216 bytes, expected at most 1,048,576"
    ):
        download("small", tmp_path)
    assert names(tmp_path / ".download" / "small") == []


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_of_too_many_files_is_refused(
    offer: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(download_module, "MAX_MEMBERS", 10)
    offer(PACK[kind]({TRAIN: RECORDS} | {f"small-records/{i}": b"" for i in range(10)}), kind)
    with pytest.raises(DownloadError, match=r"cannot be unpacked \(it holds more than 10 files"):
        download("small", tmp_path)


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("keep", [0, 100, -1200])
def test_an_archive_that_cannot_be_unpacked_is_removed_and_told(
    offer: Callable[..., None], tmp_path: Path, kind: str, keep: int
) -> None:
    noise = hashlib.shake_128(b"does not compress").digest(3072)
    offer(PACK[kind]({TRAIN: RECORDS[:2] + noise})[:keep], kind, checksum=None)
    with pytest.raises(DownloadError, match=r"small\.archive cannot be unpacked"):
        download("small", tmp_path)
    assert names(tmp_path) == [".download"]
    assert names(tmp_path / ".download" / "small") == []


def test_an_archive_that_holds_something_else_does_not_take_the_name(
    offer: Callable[..., None], tmp_path: Path
) -> None:
    offer(tar_of({TRAIN: RECORDS * 2}))
    with pytest.raises(DownloadError, match=r"not what is expected: train\.bin holds 6,148 bytes"):
        download("small", tmp_path)
    assert names(tmp_path) == [".download"]


def test_a_disk_that_fills_up_while_unpacking_keeps_the_archive(
    site: Site, offer: Callable[..., None], tmp_path: Path
) -> None:
    offer(tar_of({TRAIN: RECORDS}))

    def full(step: str, _done: int, _total: int | None) -> None:
        if step.startswith("unpacking"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DownloadError, match="no room left"):
        download("small", tmp_path, full)
    assert names(tmp_path) == [".download"]
    assert names(tmp_path / ".download" / "small") == ["small.archive"]
    assert download("small", tmp_path) == "downloaded"
    assert site.asked == ["small.archive"]


KILLED_WHILE_UNPACKING = """
import os, signal, sys
from pathlib import Path
from holdfast.data.catalogue import CATALOGUE, Archive, DataSet, LabelledRecords
from holdfast.data.download import download

def die(step, done, total):
    if step.startswith("unpacking"):
        os.kill(os.getpid(), signal.SIGKILL)

url, checksum, root = sys.argv[1:]
CATALOGUE["small"] = DataSet(
    name="small", title="", where="small-records", layout=LabelledRecords({"train.bin": 1}, n_classes=1),
    homepage="", archives=(Archive("small.archive", (url,), None, checksum, "tar"),),
    download_size="", licence="", streams=(), by_hand="",
)
download("small", Path(root), die)
"""


def test_a_process_killed_while_unpacking_leaves_no_half_set_and_the_next_one_ends_it(
    site: Site, offer: Callable[..., None], tmp_path: Path
) -> None:
    archive = tar_of({"small-records/first.txt": b"unpacked before the kill", TRAIN: RECORDS})
    offer(archive)
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            KILLED_WHILE_UNPACKING,
            site.url("small.archive"),
            sha256(archive),
            str(tmp_path),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert names(tmp_path) == [".download"]
    assert (tmp_path / ".download/small/unpacked/small-records/first.txt").exists()
    assert download("small", tmp_path) == "downloaded"
    assert (tmp_path / TRAIN).read_bytes() == RECORDS
    assert site.asked == ["small.archive"]


def test_of_two_downloads_at_once_one_waits_and_finds_the_set(
    site: Site, offer: Callable[..., None], tmp_path: Path
) -> None:
    offer(tar_of({TRAIN: RECORDS}))
    first_is_busy, second_waits = threading.Event(), threading.Event()
    outcomes: dict[str, str] = {}

    def hold(_step: str, _done: int, _total: int | None) -> None:
        first_is_busy.set()
        assert second_waits.wait(10)

    def note(step: str, _done: int, _total: int | None) -> None:
        if step == "waiting for another download":
            second_waits.set()

    def first() -> None:
        outcomes["first"] = download("small", tmp_path, hold)

    thread = threading.Thread(target=first)
    thread.start()
    assert first_is_busy.wait(10)
    outcomes["second"] = download("small", tmp_path, note)
    thread.join()
    assert outcomes == {"first": "downloaded", "second": "already there"}
    assert site.asked == ["small.archive"]


def test_a_set_that_nobody_publishes_says_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"copy awa1_features\.npz into the data folder, which is ") as caught:
        download("awa1_features", tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert names(tmp_path) == []


def test_a_data_folder_that_cannot_be_made_is_told(offer: Callable[..., None], tmp_path: Path) -> None:
    offer(tar_of({TRAIN: RECORDS}))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match=r"the disk refuses .*: Not a directory"):
        download("small", tmp_path / "file" / "data")


def test_an_unknown_set_is_told() -> None:
    with pytest.raises(UnknownDataSet, match="no 'smal'"):
        download("smal", Path("nowhere"))


@pytest.mark.parametrize("name", ["", "/.", "."])
def test_a_member_of_a_zip_archive_without_a_name_is_refused(name):
    with pytest.raises(download_module._Broken):
        download_module._refuse_unsafe(zipfile.ZipInfo(name))
