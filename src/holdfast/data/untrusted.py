"""Open files of strangers: no pipe hangs the reader, no small file fills the memory, no name leads elsewhere.

Every refusal is an `Unsafe`, which names no path: the caller knows which file of which data set it read.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import struct
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

PICTURE_FORMATS = ("JPEG", "PNG")  # Pillow knows others that start programs, such as EPS
MAX_PICTURE_BYTES = 64 * 2**20
MAX_PIXELS = 50_000_000  # 150 MB as RGB; the data sets hold pictures of up to some millions
MAX_NAME = 255  # bytes of a file's name
MAX_TEXT = 64 * 2**20  # bytes of a list
MAX_DIRECTORY = 64 * 2**20  # bytes of the directory of a zip archive: some 500,000 names
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those of others may ask for gigabytes to unpack one byte


class Unsafe(ValueError):
    """A file that is not opened, or not read on.

    Attributes:
        found, expected: in words.
    """

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"{found}, expected {expected}")
        self.found = found
        self.expected = expected


def one_line(reason: Exception) -> str:
    """Return the first line of what an error says, or its kind where it says nothing."""
    return str(reason).partition("\n")[0] or type(reason).__name__


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading. A pipe, a device or a folder is refused, and none of them is waited for.

    Example:
        >>> with open_regular(Path("/etc/hostname")) as file:
        ...     name = file.read()
    """
    _check_regular(path.stat())  # first, as opening a device may already do something
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_regular(os.fstat(handle))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_regular(facts: os.stat_result) -> None:
    if stat.S_ISREG(facts.st_mode):
        return
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
    raise Unsafe(f"{kinds.get(stat.S_IFMT(facts.st_mode), 'a device')}", "a file")


def read_at_most(path: Path, n_bytes: int) -> bytes:
    """Return the content of a file that may have so many bytes.

    Example:
        >>> len(read_at_most(Path("/etc/hostname"), 1000)) <= 1000
        True
    """
    with open_regular(path) as file:
        return _read(file, n_bytes)


def unpacked_at_most(path: Path, n_bytes: int) -> bytes:
    """Return the content of a gzip file that may hold so many bytes; more bytes are never unpacked."""
    with open_regular(path) as file, gzip.GzipFile(fileobj=file) as packed:
        return _read(packed, n_bytes)


def _read(file: IO[bytes] | gzip.GzipFile, n_bytes: int) -> bytes:
    content = file.read(n_bytes + 1)
    if len(content) > n_bytes:
        raise Unsafe(f"more than {n_bytes:,} bytes", "no more")
    return content


def check_name(name: str, *, is_folder: bool = False) -> None:
    """Refuse a name of a list or an archive that may lead out of the folder it belongs to.

    Args:
        is_folder: it names one folder or file, so that it may have no slash.

    Example:
        >>> check_name("images/001.Albatross/1.jpg")
        >>> check_name("../secret")
        Traceback (most recent call last):
        ...
        holdfast.data.untrusted.Unsafe: the name '../secret', expected one inside the folder
    """
    windows = PureWindowsPath(name)  # knows both slashes, and drives
    leads_out = windows.anchor or ".." in windows.parts or PurePosixPath(name).is_absolute()
    too_long = any(len(part.encode(errors="surrogatepass")) > MAX_NAME for part in windows.parts)
    if not name or "\0" in name or leads_out or too_long or (is_folder and len(windows.parts) != 1):
        raise Unsafe(f"the name {_short(name)}", "one inside the folder")


def _short(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}…")


class Inside:
    """Stat files of one folder, and refuse links that lead out of it.

    The folder itself may be a link. Example:
        >>> facts = Inside(Path("/etc")).stat("hostname")
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.real = Path(os.path.realpath(folder))
        self.known = {folder}  # folders below it that were looked at

    def stat(self, name: str) -> os.stat_result:
        """Facts of the regular file `name` below the folder."""
        check_name(name)
        path = self.folder / name
        if path.parent not in self.known:
            self._check(path.parent)
            self.known.add(path.parent)
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            self._check(path)
            facts = path.stat()
        _check_regular(facts)
        return facts

    def _check(self, path: Path) -> None:
        if not Path(os.path.realpath(path)).is_relative_to(self.real):
            raise Unsafe("a link that leads out of the folder", "a file of its own")


@contextlib.contextmanager
def open_picture(path: Path) -> Iterator[Image.Image]:
    """Context manager: a JPEG or PNG picture of at most MAX_PIXELS by its header; nothing is decoded yet.

    Example:
        >>> with open_picture(Path("bird.jpg")) as picture:  # doctest: +SKIP
        ...     picture.load()
    """
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > MAX_PICTURE_BYTES:
            raise Unsafe(f"{size:,} bytes", f"a picture of at most {MAX_PICTURE_BYTES:,}")
        try:
            picture = Image.open(file, formats=PICTURE_FORMATS)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as reason:
            raise Unsafe(f"more pixels than a photo has ({reason})", f"at most {MAX_PIXELS:,}") from None
        except UnidentifiedImageError:
            raise Unsafe(f"damaged data (no {' or '.join(PICTURE_FORMATS)} picture)", "a photo") from None
        with picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise Unsafe(f"{width} x {height} pixels", f"at most {MAX_PIXELS:,} in all")
            yield picture


def arrays_of(path: Path, names: Sequence[str] | None = None, *, at_most: int) -> dict[str, NDArray[Any]]:
    """Arrays of an npz archive, together of no more than so many bytes. None may hold objects, which are pickled.

    All arrays are read unless `names` are given; KeyError has the name of one that is not there.
    """
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > at_most:
            raise Unsafe(f"{size:,} bytes", f"at most {at_most:,}")
        try:
            with open_zip(file) as archive:
                held = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
                chosen = [held[name] for name in names if name in held] if names else list(held.values())
                if sum(info.file_size for info in chosen) > at_most:
                    raise Unsafe(f"arrays of more than {at_most:,} bytes", "no more")
                arrays = {info.filename.removesuffix(".npy"): _array(archive, info) for info in chosen}
        except Unsafe:
            raise
        except Exception as reason:  # zipfile, zlib and NumPy raise many kinds, and each means the same here
            raise Unsafe(f"damaged data ({one_line(reason)})", "an npz archive") from reason
    for name in names or ():
        if name not in arrays:
            raise KeyError(name)
    return arrays


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Return an array whose header promises as many bytes as there are."""
    with archive.open(info) as member, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy advises on odd headers
        version = np.lib.format.read_magic(member)
        read_header = HEADERS.get(version)
        if read_header is None:
            raise Unsafe(f"{info.filename} in the format {version}", "1.0 or 2.0")
        shape, fortran_order, dtype = read_header(member)
        n_items = 1
        for n in shape:
            n_items *= n
        if dtype.hasobject:
            raise Unsafe(f"{info.filename} of objects", "an array of numbers")
        body = member.read()
    if min(shape, default=0) < 0 or len(body) != n_items * dtype.itemsize:
        raise Unsafe(f"{info.filename} of {len(body):,} bytes", f"{dtype}{shape} as its header says")
    return np.frombuffer(body, dtype).reshape(shape, order="F" if fortran_order else "C").copy()


@contextlib.contextmanager
def open_zip(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """Context manager: a zip archive with a directory of bounded size, and with plainly packed members."""
    if (n_bytes := _directory_bytes(file)) > MAX_DIRECTORY:
        raise Unsafe(f"a directory of {n_bytes:,} bytes", f"at most {MAX_DIRECTORY:,}")
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.compress_type not in ZIP_METHODS or info.flag_bits & 1:
                raise Unsafe(f"{_short(info.filename)} encrypted or packed in an unusual way", "deflate")
        yield archive


def _directory_bytes(file: BinaryIO) -> int:
    """Bytes of the directory of a zip archive, as its last record says; 0 if there is no such record."""
    end, locator, record = 22, 20, 56  # bytes of the three records at the end
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - end - 2**16 - locator - record)
    file.seek(start)
    tail = file.read()
    place = tail.rfind(b"PK\5\6")
    if place < 0 or len(tail) < place + end:
        return 0
    (n_bytes,) = struct.unpack_from("<I", tail, place + 12)
    large = place - locator - record
    if large >= 0 and tail[large : large + 4] == b"PK\6\6" and tail[place - locator : place - locator + 4] == b"PK\6\7":
        n_bytes = max(n_bytes, struct.unpack_from("<Q", tail, large + 40)[0])
    return int(n_bytes)


class Bounded:
    """A file that may be read up to a byte, and in pieces of at most `PIECE`; for tarfile, which trusts headers.

    Example:
        >>> import io
        >>> Bounded(io.BytesIO(b"abc"), 2).read(3)
        Traceback (most recent call last):
        ...
        holdfast.data.untrusted.Unsafe: more than 2 bytes, expected no more
    """

    PIECE = 2**20

    def __init__(self, file: IO[bytes] | gzip.GzipFile, n_bytes: int) -> None:
        self.file = file
        self.n_bytes = n_bytes

    def read(self, n: int = -1) -> bytes:
        if not 0 <= n <= self.PIECE:
            raise Unsafe(f"a header of {n:,} bytes", f"at most {self.PIECE:,}")
        content = self.file.read(n)
        if self.file.tell() > self.n_bytes:
            raise Unsafe(f"more than {self.n_bytes:,} bytes", "no more")
        return content

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET or place > self.n_bytes:
            raise Unsafe(f"more than {self.n_bytes:,} bytes", "no more")
        return self.file.seek(place)

    def tell(self) -> int:
        return self.file.tell()
