"""Fetch a publisher's files so that a cut connection, a kill or a full disk never costs or spoils anything."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import http.client
import importlib.metadata
import json
import os
import re
import shutil
import stat
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PureWindowsPath
from typing import IO, Literal

from holdfast.core.atomic import sync_folder
from holdfast.data.catalogue import Archive, DataSet, find
from holdfast.data.untrusted import Bounded, Unsafe, open_zip

Progress = Callable[[str, int, int | None], None]  # what is being done, bytes done, bytes in all if known
Outcome = Literal["downloaded", "already there"]

BLOCK = 1 << 18
IDLE_ATTEMPTS = 5  # attempts in a row that bring nothing new before giving up
SECONDS_TO_ANSWER = 30.0
PASSING_ERRORS = {408, 425, 429}  # with 500 and above: the server may answer better later
MOST_UNPACKED = 4  # times the bytes of an archive: pictures hardly shrink when they are packed
LEAST_UNPACKED = 2**26  # bytes that any archive may hold
MAX_MEMBERS = 200_000  # of an archive; the largest set has 37,322 pictures


class DownloadError(Exception):
    """A download cannot go on; the message is one sentence that says why and what to do."""


class _Unusable(Exception):
    """This address will not do, now or later."""


class _Cut(Exception):
    """The transfer ended early; what has come is kept."""


def silent(_step: str, _done: int, _total: int | None) -> None:
    """Callback that does nothing."""


def download(
    name: str, root: Path, progress: Progress = silent, *, wait: Callable[[float], None] = time.sleep
) -> Outcome:
    """Bring the data set into its place below `root`: whole, or not at all.

    Archives are fetched into `root`/.download, where the next call finds what came before a kill.
    """
    data_set = find(name)
    workshop = root / ".download" / name
    if data_set.status(root).state == "present" and not workshop.exists():
        return "already there"
    if not data_set.archives:
        raise DownloadError(f"{name} cannot be downloaded; {data_set.by_hand}, which is {root}")
    with _disk(workshop):
        workshop.mkdir(parents=True, exist_ok=True)
    with _locked(workshop.with_suffix(".lock"), progress):
        # Asked again: another process may have brought it while this one waited for the lock.
        status = data_set.status(root)
        if status.state == "present":
            shutil.rmtree(workshop, ignore_errors=True)  # a kill may have left the archives
            return "already there"
        if status.state == "incomplete":
            raise DownloadError(
                f"{root / data_set.where} is there but incomplete ({status.missing[0]}): "
                "move it away, then give the same command again"
            )
        for archive in data_set.archives:
            fetch(
                archive.urls,
                workshop / archive.file,
                size=archive.size,
                at_most=archive.at_most,
                checksum=archive.checksum,
                progress=progress,
                wait=wait,
            )
        _unpack_all(data_set, root, workshop, progress)
        shutil.rmtree(workshop, ignore_errors=True)
    return "downloaded"


def fetch(
    urls: Sequence[str],
    target: Path,
    *,
    size: int | None = None,
    at_most: int | None = None,
    checksum: str | None = None,
    progress: Progress = silent,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Bring one file from the first of `urls` that gives it, going on from what an earlier call left.

    What has come stands in `target`.part until it is complete and its checksum ("sha256:…" or "md5:…") is right.

    Args:
        size: in bytes; an address that offers or gives another is passed over.
        at_most: bytes that are taken where the size is not known.
    """
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise DownloadError(f"{url} is not an http or https address")
    if target.exists():
        _check(target, checksum, progress)
        return
    part = _beside(target, ".part")
    if _remembered(part) is None:  # nothing says of which file it is a part
        _forget(part)
    usable = list(urls)
    problems: list[str] = []
    most, idle = _size(part), 0
    while True:
        if not usable:
            raise DownloadError(f"{target.name} cannot be had: {'; '.join(problems)}")
        try:
            _receive(usable[0], part, size=size, at_most=at_most, step=f"fetching {target.name}", progress=progress)
            break
        except _Unusable as problem:
            problems.append(f"{usable.pop(0)} {problem}")
        except _Cut as problem:
            if _size(part) > most:  # the address works: stay with it
                most, idle = _size(part), 0
            else:
                idle += 1
                usable.append(usable.pop(0))
            if idle == IDLE_ATTEMPTS:
                raise DownloadError(
                    f"{target.name} did not come in {IDLE_ATTEMPTS} attempts ({problem}): "
                    "what has come is kept, the same command continues"
                ) from None
            wait(2.0**idle)
    _check(part, checksum, progress)
    with _disk(target):
        part.replace(target)
        _forget(part)
        sync_folder(target.parent)


@dataclass(frozen=True)
class _Resource:
    """Identity of a file on a server. Kept beside the partial file to detect a changed file."""

    size: int | None
    etag: str | None
    modified: str | None

    @property
    def validator(self) -> str | None:
        """Return the value for If-Range, if any: HTTP allows no weak tag there."""
        return self.modified if self.etag is None or self.etag.startswith("W/") else self.etag

    def contradicts(self, other: _Resource) -> bool:
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return any(a is not None and b is not None and a != b for a, b in pairs)


def _receive(url: str, part: Path, *, size: int | None, at_most: int | None, step: str, progress: Progress) -> None:
    """Append to the part what it lacks, or begin it anew where the server wants that."""
    begun = _remembered(part)
    have = _size(part)
    if begun and have and have == begun.size:
        return
    headers = {"User-Agent": f"holdfast/{_version()}"}
    if begun and have:
        headers["Range"] = f"bytes={have}-"
        if begun.validator:
            headers["If-Range"] = begun.validator
    with _answer(urllib.request.Request(url, headers=headers), part) as response:
        start, resource = _described(response)
        if start and (begun is None or start != have or resource.contradicts(begun)):
            _forget(part)
            raise _Cut("the file changed meanwhile")
        if size is not None and resource.size not in (None, size):
            raise _Unusable(f"offers {resource.size:,} bytes, expected {size:,}")
        if size is None and at_most is not None and (resource.size or 0) > at_most:
            raise _Unusable(f"offers {resource.size:,} bytes, expected at most {at_most:,}")
        total = size if resource.size is None else resource.size
        bound = at_most if total is None else total
        with _disk(part), part.open("ab" if start else "wb") as file:
            if not start:  # only now that the old part is gone: a note must never describe other bytes
                _beside(part, ".json").write_text(json.dumps(asdict(resource)))
            have = start
            progress(step, have, total)
            while block := _read(response):
                file.write(block)
                have += len(block)
                progress(step, have, total)
                if bound is not None and have > bound:
                    break
            file.flush()
            os.fsync(file.fileno())
    if resource.size is not None and have < resource.size:
        raise _Cut(f"the connection ended after {have:,} of {resource.size:,} bytes")
    if bound is not None and have > bound:
        _forget(part)
        raise _Unusable(f"gave more than {bound:,} bytes, expected no more")
    if size is not None and have != size:
        _forget(part)
        raise _Unusable(f"gave {have:,} bytes, expected {size:,}")


def _answer(request: urllib.request.Request, part: Path) -> http.client.HTTPResponse:
    """Return the server's answer; a refusal raises, and says if it is for good or for now."""
    try:
        opener = urllib.request.build_opener(_OnlyHttp)
        response: http.client.HTTPResponse = opener.open(request, timeout=SECONDS_TO_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:  # the part is longer than what the server has now
                _forget(part)
                raise _Cut("the file changed meanwhile") from None
            words = f"answered {error.code} {error.reason}"
            passing = error.code >= 500 or error.code in PASSING_ERRORS
            raise (_Cut if passing else _Unusable)(words) from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise _Cut(str(reason) or type(reason).__name__) from None
    return response


def _described(response: http.client.HTTPResponse) -> tuple[int, _Resource]:
    """Return the first byte that the answer holds, and what it says of the whole file."""
    start, size = 0, None
    if response.status == 206:
        given = re.fullmatch(
            r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})", response.headers.get("Content-Range", "")
        )
        if given is None:
            raise _Unusable("answered a part without saying which")
        start, size = int(given[1]), int(given[2])
    elif response.status != 200:
        raise _Unusable(f"answered {response.status} {response.reason}")
    else:
        size = response.length
    return start, _Resource(size, response.headers.get("ETag"), response.headers.get("Last-Modified"))


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _Cut(f"the connection was lost: {str(error) or type(error).__name__}") from None


class _OnlyHttp(urllib.request.HTTPRedirectHandler):
    """A server may send us on, but not to another kind of address."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not newurl.startswith(("http://", "https://")):
            fp.close()
            raise _Unusable(f"leads to {newurl}, not an http or https address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _version() -> str:
    try:
        return importlib.metadata.version("holdfast")
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return "source"


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _remembered(part: Path) -> _Resource | None:
    try:
        return _Resource(**json.loads(_beside(part, ".json").read_text()))
    except (OSError, ValueError, TypeError):  # none, or half written: then the part cannot be trusted
        return None


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _beside(part, ".json").unlink(missing_ok=True)


def _check(file: Path, checksum: str | None, progress: Progress) -> None:
    """Remove a file whose checksum is wrong, and say so."""
    if checksum is None:
        return
    kind, _, expected = checksum.partition(":")
    digest = hashlib.new(kind, usedforsecurity=False)
    name = file.name.removesuffix(".part")
    done, total = 0, file.stat().st_size
    with _disk(file), file.open("rb") as content:
        while block := content.read(BLOCK):
            digest.update(block)
            done += len(block)
            progress(f"checking {name}", done, total)
    if (found := digest.hexdigest()) != expected:
        _forget(file)
        raise DownloadError(
            f"{name} has {kind} {found}, expected {expected}: removed, the same command fetches it anew"
        )


def _unpack_all(data_set: DataSet, root: Path, workshop: Path, progress: Progress) -> None:
    """Unpack in the workshop, then give the whole set its final name in one step."""
    unpacked = workshop / "unpacked"
    with _disk(unpacked):
        if unpacked.exists():
            shutil.rmtree(unpacked)  # left by a run that was killed
        unpacked.mkdir()
    for archive in data_set.archives:
        source = workshop / archive.file
        try:
            with _disk(unpacked):
                _unpack(archive, source, unpacked, data_set.where, progress)
        except _Broken as problem:
            source.unlink()
            shutil.rmtree(unpacked, ignore_errors=True)
            raise DownloadError(f"{archive.file} cannot be unpacked ({problem}): removed") from None
        except DownloadError:
            shutil.rmtree(unpacked, ignore_errors=True)  # gives its room back; the archive is kept
            raise
    status = data_set.status(unpacked)
    if status.state != "present":
        raise DownloadError(f"{data_set.name} as fetched is not what is expected: {status.missing[0]}")
    with _disk(root):
        os.sync()  # the bytes of thousands of files before the name that vouches for them
        (unpacked / data_set.where).rename(root / data_set.where)
        sync_folder(root)


class _Broken(Exception):
    """An archive that cannot or must not be unpacked."""


def _unpack(archive: Archive, source: Path, into: Path, where: str, progress: Progress) -> None:
    step = f"unpacking {archive.file}"
    try:
        if archive.kind == "tar":
            _unpack_tar(source, into, step, progress)
        elif archive.kind == "zip":
            _unpack_zip(source, into, step, progress)
        else:
            (into / where).mkdir(exist_ok=True)
            shutil.copyfile(source, into / where / archive.file)
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        gzip.BadGzipFile,
        zlib.error,
        EOFError,
        RuntimeError,
        Unsafe,
    ) as error:
        raise _Broken(str(error)) from None


def _unpack_tar(source: Path, into: Path, step: str, progress: Progress) -> None:
    """Unpack files and folders; a link, a device or a pipe is refused, since no data set has any."""
    total = source.stat().st_size
    with source.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content = Bounded(gzip.GzipFile(fileobj=file) if is_gzip else file, _room(total))
        with tarfile.open(fileobj=content, mode="r:") as tar:  # type: ignore[call-overload]  # reads, seeks and tells
            n_bytes = 0
            for n_members, member in enumerate(tar, start=1):
                n_bytes += member.size  # of a sparse one more than is there
                _check_room(n_bytes, n_members, total)
                if not (member.isreg() or member.isdir()):
                    raise _Broken(f"it holds {member.name!r}, which is no file and no folder")
                tar.extract(member, into, filter="data")  # refuses what would land outside
                progress(step, file.tell(), total)


def _unpack_zip(source: Path, into: Path, step: str, progress: Progress) -> None:
    done, total = 0, source.stat().st_size
    with source.open("rb") as file, open_zip(file) as archive:
        _check_room(sum(member.file_size for member in archive.infolist()), len(archive.infolist()), total)
        for member in archive.infolist():
            _refuse_unsafe(member)
        for member in archive.infolist():
            archive.extract(member, into)
            done += member.compress_size
            progress(step, done, total)


def _room(n_packed: int) -> int:
    """Bytes that an archive of `n_packed` bytes may hold."""
    return max(MOST_UNPACKED * n_packed, LEAST_UNPACKED)


def _check_room(n_bytes: int, n_members: int, n_packed: int) -> None:
    if n_bytes > _room(n_packed):
        raise _Broken(f"it holds {n_bytes:,} bytes, expected at most {_room(n_packed):,}")
    if n_members > MAX_MEMBERS:
        raise _Broken(f"it holds more than {MAX_MEMBERS:,} files")


def _refuse_unsafe(member: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(member.external_attr >> 16)
    path = PureWindowsPath(member.filename)  # knows both slashes, and drives
    if not path.parts:
        raise _Broken(f"it holds {member.filename!r}, which names no file")
    if path.anchor or ".." in path.parts or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _Broken(f"it holds {member.filename!r}, which would lead outside the folder")


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Context manager: turn an error of the disk into one sentence. Only the disk may raise OSError inside."""
    try:
        yield
    except gzip.BadGzipFile:  # an OSError, but of the content
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DownloadError(
                f"no room left for {path}: make some; what has come is kept, the same command continues"
            ) from None
        raise DownloadError(f"the disk refuses {error.filename or path}: {error.strerror or error}") from None


@contextlib.contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Context manager: one process at a time. The lock ends with the process, so a killed one leaves none."""
    with _disk(path):
        lock = path.open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another download", 0, None)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
