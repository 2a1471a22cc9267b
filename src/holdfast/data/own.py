"""Read a researcher's own data: arrays in files of NumPy, and pictures in a folder per class."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.data.places import BrokenData, MissingData, data_root
from holdfast.data.untrusted import Unsafe, arrays_of, one_line, open_regular

MAX_ARRAYS = 2**34  # bytes of an .npz file, which is read whole; files of one array each are mapped
PICTURES = (".jpg", ".jpeg", ".png")
SIDES = ("train", "test")

Arrays = dict[str, NDArray[Any]]


def own_place(path: str, data: Path | None, *, example: str) -> Path:
    """Return the file or folder `path`: below the folder of the data sets if it is there, else from the current one.

    Args:
        example: an option that names one, for the error where `path` is empty.
    """
    if not path:
        raise ValueError(f"no path is given: say where your data is, as in --set stream.path={example}")
    inside = data_root(data) / path  # an absolute path stays as it is
    found = inside if inside.exists() else Path(path)
    if not found.exists():
        places = f"{Path(path).absolute()}" if Path(path).is_absolute() else f"{inside}, nor at {Path(path).absolute()}"
        raise MissingData(f"nothing at {places}: give the path of your data with --set stream.path={example}")
    return found


def read_arrays(place: Path, names: Sequence[str]) -> Arrays:
    """Read arrays by name from an .npz file, or from a folder with an .npy file for each.

    Files of a folder are mapped and not loaded. Nothing is unpickled.
    """
    if place.is_dir():
        return {name: _mapped(place / f"{name}.npy") for name in names}
    try:
        return arrays_of(place, names, at_most=MAX_ARRAYS)
    except KeyError as reason:
        raise BrokenData(
            f"{place}: no array '{reason.args[0]}', expected {', '.join(names)}: save it with numpy.savez"
        ) from reason
    except Unsafe as reason:
        raise BrokenData(
            f"{place}: found {reason.found}, expected {reason.expected}: save your arrays with numpy.savez"
        ) from reason


def _mapped(path: Path) -> NDArray[Any]:
    if not path.exists():
        raise MissingData(f"no {path.name} in {path.parent}: save each array there with numpy.save")
    try:
        open_regular(path).close()
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as reason:  # NumPy raises many kinds, and each means the same here
        raise BrokenData(f"{path}: found {one_line(reason)}, expected an array: save it with numpy.save") from reason
    return np.asarray(array)


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures in a folder per class.

    Attributes:
        files: (n,) paths below the folder.
        y: (n,) labels, numbers in `classes`.
        is_train: (n,) those for training.
        classes: names of the class folders, sorted.
    """

    files: list[str]
    y: NDArray[np.int64]
    is_train: NDArray[np.bool_]
    classes: list[str]


def find_pictures(folder: Path, test_share: float | None) -> Pictures:
    """List the pictures of a folder.

    Args:
        test_share: of each class, drawn by the SHA-256 of the names. None where the folder holds `train` and `test`.
    """
    if not folder.is_dir():
        raise BrokenData(f"{folder}: found a file, expected a folder of pictures with a folder for each class")
    has_sides = all((folder / side).is_dir() for side in SIDES)
    if test_share is None and not has_sides:
        raise BrokenData(
            f"{folder}: no folders train and test in it: make them, each with a folder for each class, "
            "or say which share of each class is for testing, as in --set stream.test_share=0.2"
        )
    if test_share is not None and has_sides:
        raise BrokenData(f"{folder}: its folders train and test are a split already: leave test_share out")
    if has_sides:
        trained, tested = (_by_class(folder, side) for side in SIDES)
        if odd := sorted(trained.keys() ^ tested.keys()):
            side = SIDES[odd[0] in trained]
            raise BrokenData(f"{folder / side}: no folder '{odd[0]}', which {SIDES[side == 'train']} has")
    else:
        assert test_share is not None
        trained, tested = _parted(folder, _by_class(folder, ""), test_share)
    classes = sorted(trained)
    rows = [
        (file, label, side == "train")
        for side, files in zip(SIDES, (trained, tested), strict=True)
        for label, name in enumerate(classes)
        for file in files[name]
    ]
    files, y, is_train = zip(*rows, strict=True)
    return Pictures(list(files), np.array(y, np.int64), np.array(is_train, np.bool_), classes)


def _by_class(folder: Path, side: str) -> dict[str, list[str]]:
    """Return the pictures of each class folder, sorted, as paths below `folder`."""
    place = folder / side
    found: dict[str, list[str]] = {}
    for entry in _visible(place):
        if not entry.is_dir():
            raise BrokenData(f"{entry}: found a file, expected nothing but a folder for each class")
        found[entry.name] = [_picture(file) for file in _visible(entry)]
        if not found[entry.name]:
            raise BrokenData(f"{entry}: no picture in it: put some there, or take the folder away")
    if not found:
        raise BrokenData(f"{place}: no folder in it, expected one for each class")
    return {name: [f"{side}/{name}/{file}".lstrip("/") for file in files] for name, files in found.items()}


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _picture(path: Path) -> str:
    if not path.name.lower().endswith(PICTURES):
        raise BrokenData(f"{path}: no picture by its name, expected one that ends with {', '.join(PICTURES)}")
    return path.name


def _parted(
    folder: Path, files: Mapping[str, list[str]], test_share: float
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Take the share of each class for testing whose names have the lowest SHA-256; both sides get one at least."""
    if not 0 < test_share < 1:
        raise ValueError(f"test_share={test_share}: give a share between 0 and 1, such as 0.2")
    trained, tested = {}, {}
    for name, paths in files.items():
        if len(paths) < 2:
            raise BrokenData(f"{folder / name}: {len(paths)} picture, expected one to learn and one to test at least")
        n_test = min(max(round(test_share * len(paths)), 1), len(paths) - 1)
        order = sorted(paths, key=lambda path: hashlib.sha256(path.encode(errors="surrogateescape")).digest())
        trained[name], tested[name] = sorted(order[n_test:]), sorted(order[:n_test])
    return trained, tested
