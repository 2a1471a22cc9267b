"""Small data sets in the layouts of the real ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def idx(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write_mnist(root: Path, *, n_train: int = 5030, n_test: int = 20) -> None:
    """Training files packed, test files not."""
    rng = np.random.default_rng(1)
    folder = root / "mnist"
    folder.mkdir(parents=True)
    for part, n in (("train", n_train), ("t10k", n_test)):
        x = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        y = (np.arange(n) % 1007 % 10).astype(np.uint8)  # rows 0 and 5000 differ
        for file, array in ((f"{part}-images-idx3-ubyte", x), (f"{part}-labels-idx1-ubyte", y)):
            if part == "train":
                (folder / f"{file}.gz").write_bytes(gzip.compress(idx(array), compresslevel=1))
            else:
                (folder / file).write_bytes(idx(array))


def write_cifar100(root: Path, *, n_train: int = 4, n_test: int = 2) -> None:
    """That many images of each class."""
    rng = np.random.default_rng(2)
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    for part, n in (("train", n_train), ("test", n_test)):
        records = rng.integers(0, 256, (100 * n, 3074), dtype=np.uint8)
        records[:, 1] = rng.permutation(np.arange(100 * n) % 100)
        (folder / f"{part}.bin").write_bytes(records.tobytes())


def write_cifar10(root: Path, *, n_train: int = 2, n_test: int = 2) -> None:
    """Write five training batches and a test batch with that many images of each class."""
    rng = np.random.default_rng(8)
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    parts = {f"data_batch_{i}": n_train for i in range(1, 6)} | {"test_batch": n_test}
    for part, n in parts.items():
        records = rng.integers(0, 256, (10 * n, 3073), dtype=np.uint8)
        records[:, 0] = rng.permutation(np.arange(10 * n) % 10)
        (folder / f"{part}.bin").write_bytes(records.tobytes())


def write_photo(path: Path, rng: np.random.Generator, *, size: tuple[int, int] = (8, 6)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path, "JPEG")


def write_cub(root: Path) -> None:
    """Two photos of each class for training, one for testing."""
    rng = np.random.default_rng(3)
    folder = root / "CUB_200_2011"
    names = [f"{c + 1:03}.Bird_{c}/Bird_{c}_{i}.jpg" for c in range(200) for i in range(3)]
    for name in names:
        write_photo(folder / "images" / name, rng)
    write_list(folder / "images.txt", names)
    write_list(folder / "image_class_labels.txt", [str(i // 3 + 1) for i in range(600)])
    write_list(folder / "train_test_split.txt", [str(int(i % 3 < 2)) for i in range(600)])
    write_list(folder / "classes.txt", [f"{c + 1:03}.Bird_{c}" for c in range(200)])


def write_list(path: Path, values: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{i} {value}\n" for i, value in enumerate(values, start=1)))


def write_awa2(root: Path, *, n: int = 20) -> None:
    """That many photos of each class."""
    rng = np.random.default_rng(4)
    folder = root / "Animals_with_Attributes2"
    names = [f"animal+{c}" for c in range(50)]
    folder.mkdir()
    for name in names:
        for i in range(n):
            write_photo(folder / "JPEGImages" / name / f"{name}_{10001 + i}.jpg", rng)
    (folder / "classes.txt").write_text("".join(f"{i:12}\t{name}\n" for i, name in enumerate(names, start=1)))


def write_awa1_features(root: Path, *, n: int = 30) -> None:
    """That many vectors of each class, of which two thirds are for training."""
    rng = np.random.default_rng(5)
    np.savez(
        root / "awa1_features.npz",
        features=rng.standard_normal((50 * n, 512)).astype(np.float16),
        labels=(np.arange(50 * n) // n).astype(np.uint8),
        is_train=np.arange(50 * n) % 3 < 2,
    )


def write_descriptors(folder: Path) -> Path:
    """The archives of AwA's descriptors for three classes: whole counts, and PHOG as shares."""
    rng = np.random.default_rng(7)
    n_pictures = {"antelope": 21, "killer+whale": 12, "bat": 7}
    lengths = {"phog-hist": 6, "lss-hist": 9, "sift-hist": 8, "surf-hist": 7, "rgsift-hist": 10}
    for descriptor, n in lengths.items():
        for name in n_pictures:
            place = folder / "Features" / descriptor / name
            place.mkdir(parents=True)
            for i in range(n_pictures[name]):
                counts = rng.integers(0, 30, n)
                numbers = counts / max(counts.sum(), 1) if descriptor == "phog-hist" else counts
                between = (" ", ",", "\n")[i % 3]
                (place / f"{name}_{i + 1:04}.txt").write_text(between.join(map(str, numbers)) + "\n")
    lines = [f"{i:8}\t{name}\n" for i, name in enumerate(n_pictures, start=1)]
    (folder / "classes.txt").write_text("".join(lines))
    (folder / "predicate-matrix-binary.txt").write_text("0 1\n1 1\n0 0\n")
    return folder


def own_arrays(n_classes: int = 40, n_train: int = 3, n_test: int = 2) -> dict[str, NDArray[np.generic]]:
    """That many rows of each class, and ids of 20 tasks."""
    rng = np.random.default_rng(8)
    arrays: dict[str, NDArray[np.generic]] = {}
    for side, n in (("train", n_train), ("test", n_test)):
        y = np.arange(n_classes * n) // n
        arrays[f"x_{side}"] = rng.standard_normal((len(y), 3, 4))
        arrays[f"y_{side}"] = np.array([f"kind {c:02}" for c in y])
        arrays[f"task_{side}"] = y % 20
    return arrays


def write_own(root: Path) -> None:
    """Arrays and pictures of one's own, 40 classes each."""
    folder = root / "own"
    folder.mkdir(parents=True)
    arrays = own_arrays()
    np.savez(folder / "arrays.npz", **arrays)
    (folder / "arrays").mkdir()
    for name, array in arrays.items():
        np.save(folder / "arrays" / f"{name}.npy", array)
    rng = np.random.default_rng(9)
    for c in range(40):
        for i in range(4):
            write_photo(folder / f"split/{'test' if i == 3 else 'train'}/kind {c:02}/{i}.jpg", rng)
            write_photo(folder / f"whole/kind {c:02}/{i}.JPEG", rng)
