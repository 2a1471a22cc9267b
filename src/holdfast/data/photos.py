"""Photos decoded once into an array on disk, which is mapped and not loaded."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import TextIOWrapper
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from holdfast.data.places import BrokenData, broken, missing, user_cache
from holdfast.data.untrusted import Inside, Unsafe, one_line, open_picture, open_regular

MAX_SIZE = 4096  # pixels a side; more are more likely a mistake
DECODED_AT_ONCE = 256  # photos in memory before they are written: 38 MB at 224 x 224


def decoded(name: str, root: Path, files: Sequence[str], *, size: int) -> NDArray[np.uint8]:
    """Return the photos `files` in `root`, of data set `name`, as RGB (n, 3, size, size).

    They are kept in one file in `<root>/.cache`, or in the user's cache where that cannot be written. Its
    name tells which photos it holds, so a changed data set gets a new one; the old one may be deleted. A
    process killed on the way leaves nothing that is taken for whole, and of several only one decodes.
    """
    stem, shape = f"{name}-{size}", (len(files), 3, size, size)
    target = f"{stem}-{_fingerprint(name, root, files, size=size)}.npy"
    folders = (root / ".cache", user_cache() / "decoded")
    for folder in folders:
        if (folder / target).exists():
            return _mapped(folder / target, shape)

    console = Console(stderr=True)
    with (
        _first_lock(folders, f"{stem}.lock") as lock,
        Progress(console=console, disable=not console.is_terminal) as progress,
    ):
        bar = progress.add_task(f"{name}: waiting for another process", total=len(files))
        fcntl.flock(lock, fcntl.LOCK_EX)  # the system takes it back from a process that dies
        progress.update(bar, description=f"{name}: decoding photos")
        folder = Path(lock.name).parent
        for leftover in folder.glob(f"{stem}-*.part"):
            leftover.unlink()
        if not (folder / target).exists():
            part = folder / f"{target}.part"
            try:
                _decode_all(
                    name,
                    [root / file for file in files],
                    part,
                    size=size,
                    advance=partial(progress.advance, bar),
                )
                part.replace(folder / target)
            finally:
                part.unlink(missing_ok=True)
    return _mapped(folder / target, shape)


def decode(name: str, path: Path, *, size: int) -> NDArray[np.uint8]:
    """Return one photo of data set `name` as RGB (3, size, size), resized without cropping."""
    try:
        with open_picture(path) as photo:
            resized = photo.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except Unsafe as reason:
        raise broken(name, path, reason.found, reason.expected) from reason
    except MemoryError:
        raise
    except Exception as reason:  # Pillow's decoders raise many kinds, and each means the same here
        raise broken(name, path, f"damaged data ({one_line(reason)})", "a photo") from reason
    return np.asarray(resized).transpose(2, 0, 1)


def _fingerprint(name: str, root: Path, files: Sequence[str], *, size: int) -> str:
    """Return a digest that changes if a photo is added, removed, moved or exchanged, or the size changes."""
    digest = hashlib.sha256(f"RGB, bilinear, {size}".encode())
    folders: dict[str, Inside] = {}  # of the data set: one, unless photos lie in the root itself
    for file in files:
        folder, _, below = file.partition("/") if "/" in file else ("", "", file)
        if folder not in folders:
            folders[folder] = Inside(root / folder)
        try:
            facts = folders[folder].stat(below)
        except (FileNotFoundError, NotADirectoryError):
            raise missing(name, root, file) from None
        except Unsafe as reason:
            raise broken(name, root / file, reason.found, reason.expected) from reason
        digest.update(f"\n{file}\t{facts.st_size}\t{facts.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _first_lock(folders: Sequence[Path], file: str) -> TextIOWrapper:
    """Return `file`, open but not locked yet, in the first of the folders that can be written."""
    reasons = []
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return (folder / file).open("a")
        except OSError as reason:
            reasons.append(str(reason))
    raise OSError(
        f"no place for decoded photos ({'; '.join(reasons)}): "
        "make one of these folders writable, or set XDG_CACHE_HOME to one that is"
    )


def _decode_all(name: str, paths: Sequence[Path], part: Path, *, size: int, advance: Callable[[int], None]) -> None:
    """Write the photos to `part`, whole and on the disk when this returns."""
    shape = (len(paths), 3, size, size)
    with part.open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for start in range(0, len(paths), DECODED_AT_ONCE):
            some = paths[start : start + DECODED_AT_ONCE]
            for photo in pool.map(partial(decode, name, size=size), some):
                file.write(photo.tobytes())
            advance(len(some))
        file.flush()
        os.fsync(file.fileno())


def _mapped(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return the decoded photos, which came with the data if that has a `.cache` of its own."""
    advice = "delete the file, and the photos are decoded again"
    try:
        open_regular(path).close()
        photos = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as reason:  # NumPy raises many kinds, and each means the same here
        raise BrokenData(f"{path}: no decoded photos ({one_line(reason)}): {advice}") from reason
    if photos.shape != shape or photos.dtype != np.uint8:
        raise BrokenData(f"{path}: found {photos.dtype}{photos.shape}, expected uint8{shape}: {advice}")
    return np.asarray(photos)
