"""Which settings suit which kind of data? The defaults beside other methods and learning rates.

    python benchmarks/defaults.py [--data DIR] [--kinds tables features pictures] > results/defaults.txt

Every row of a stream is predicted before it is learned, in batches of ten. All inputs are raw: what scales them is a
part of the learner. Each learner sees the same batches. The columns are accuracy over the whole stream, accuracy over
its last 1,000 samples, and seconds of processor time. DIR holds what the streams need. A stream whose files are absent
is left out.

| kind | stream |
|---|---|
| tables | the first rows of `streams/elec.csv` and `streams/sea_stream.csv`, and of generators of River |
| features | `birds`, `cifar100`: EfficientNet-Lite0, by `holdfast features split_cub` and `split_cifar100` |
| features | `animals`: 512 principal components of six classical descriptors (`awa1_features.npz`) |
| pictures | bytes of `mnist`, `cifar10` and `cifar100` |

Samples of features and pictures are drawn in random order. Their classes come one after the other over the first half
of the stream, and none leaves.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast import Learner
from holdfast.data.layouts import read_cifar10, read_cifar100, read_cub, read_idx
from holdfast.data.places import user_cache
from holdfast.streams._feature_file import ENDING, FOLDER, read_features

BATCH, LAST = 10, 1000
Stream = tuple[NDArray[Any], NDArray[np.int64]]
Made = dict[str, Callable[[], Learner]]


def sgd(method: str, lr: float, **settings: Any) -> Callable[[], Learner]:
    return lambda: Learner(method, lr=lr, **settings)


def on_vectors(method: str) -> Callable[[], Learner]:
    return lambda: Learner(method, backbone="identity")


SMALL_NETWORK = {"backbone": {"name": "reduced_resnet18", "width": 8}}
LEARNERS: dict[str, Made] = {
    "tables": {
        "default": Learner,
        "er 0.01": sgd("er", 0.01),
        "er 0.1": sgd("er", 0.1),
        "slda": on_vectors("slda"),
    },
    "features": {
        "default": Learner,
        "hedge": on_vectors("hedge"),
        "er 0.1": sgd("er", 0.1),
        "er 0.3": sgd("er", 0.3),
        "ncm": on_vectors("ncm"),
        "knn": on_vectors("knn"),
    },
    "pictures": {
        "default": Learner,
        "er 0.01": sgd("er", 0.01),
        "er 0.03": sgd("er", 0.03),
        "drr 0.03": sgd("drr", 0.03),
        "er resnet 0.03": sgd("er", 0.03, **SMALL_NETWORK),
    },
}


def table(path: Path, label: str, n: int) -> Stream:
    with path.open(newline="") as file:
        rows = list(itertools.islice(csv.DictReader(file), n))
    x = [[float(value) for name, value in row.items() if name != label] for row in rows]
    return np.array(x, dtype=np.float32), np.array([int(row[label]) for row in rows])


def generated(make: Callable[[], Any], n: int) -> Stream:
    rows = [(list(map(float, x.values())), int(y)) for x, y in itertools.islice(make(), n)]
    return np.array([x for x, _ in rows], dtype=np.float32), np.array([y for _, y in rows])


def with_new_classes(x: NDArray[Any], y: NDArray[Any], n: int) -> Stream:
    """Return n samples in random order; one class after the other joins over the first half."""
    rng = np.random.default_rng(0)
    order, n_classes = rng.permutation(len(y)), int(y.max()) + 1
    joins = np.maximum(0, np.arange(n_classes) - 1) / (n_classes - 1) / 2  # when, as a share of the stream; two at once
    is_left, taken = np.ones(len(y), dtype=bool), []
    for i in range(n):
        place = int((is_left & (joins[y[order]] <= i / n)).argmax())
        is_left[place] = False
        taken.append(order[place])
    return np.array(x[taken]), y[taken].astype(np.int64)


def streams(data: Path | None, kinds: list[str]) -> dict[str, tuple[str, Stream]]:
    """Return streams by name, each with its kind."""
    found: dict[str, tuple[str, Stream]] = {}
    if "tables" in kinds:
        from river.datasets import synth

        if data is not None and (data / "streams").exists():
            found["electricity"] = "tables", table(data / "streams" / "elec.csv", "target", 10_000)
            found["sea"] = "tables", table(data / "streams" / "sea_stream.csv", "class", 10_000)
        found["hyperplane"] = "tables", generated(lambda: synth.Hyperplane(seed=1, n_drift_features=5), 5000)
        found["rbf"] = "tables", generated(lambda: synth.RandomRBF(seed_model=1, seed_sample=1, n_classes=4), 5000)
        found["waveform"] = "tables", generated(lambda: synth.Waveform(seed=1), 5000)
    if data is None:
        return found
    if "features" in kinds:
        found |= {name: ("features", stream) for name, stream in features(data).items()}
    if "pictures" in kinds:
        found |= {name: ("pictures", stream) for name, stream in pictures(data).items()}
    return found


def features(data: Path) -> dict[str, Stream]:
    """Return streams of features, as far as there are files of them."""
    found = {}
    labels = {
        "birds": ("split_cub", lambda: read_cub(data).y),
        "cifar100": ("split_cifar100", lambda: read_cifar100(data / "cifar-100-binary", "train.bin")[1]),
    }
    for name, (stream, y) in labels.items():
        for path in itertools.islice((user_cache() / FOLDER).glob(f"{stream}-efficientnet_lite0-*{ENDING}"), 1):
            table = read_features(path).train
            found[name] = with_new_classes(table.features.numpy(), y()[table.rows.numpy()], 5000)
    if (data / "awa1_features.npz").exists():
        with np.load(data / "awa1_features.npz") as stored_features:
            x, y = stored_features["features"].astype(np.float32), stored_features["labels"]
        found["animals"] = with_new_classes(x, y, 5000)
    return found


def pictures(data: Path) -> dict[str, Stream]:
    """Return streams of pictures, as far as there are files of them."""
    found = {}
    if (data / "mnist").exists():
        x = read_idx(data / "mnist", "train-images-idx3-ubyte", item_shape=(28, 28))[:, None]
        found["mnist"] = with_new_classes(x, read_idx(data / "mnist", "train-labels-idx1-ubyte"), 5000)
    if (data / "cifar-10-batches-bin").exists():
        found["cifar10"] = with_new_classes(*read_cifar10(data / "cifar-10-batches-bin", "data_batch_1.bin"), 5000)
    if (data / "cifar-100-binary").exists():
        found["cifar100"] = with_new_classes(*read_cifar100(data / "cifar-100-binary", "train.bin"), 5000)
    return found


def prequential(learner: Learner, x: NDArray[Any], y: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which samples were right before they were learned."""
    right = np.zeros(len(y), dtype=bool)
    for start in range(0, len(y), BATCH):
        batch, labels = torch.from_numpy(x[start : start + BATCH]), torch.from_numpy(y[start : start + BATCH])
        if start:
            right[start : start + BATCH] = (learner.predict(batch) == labels).numpy()
        learner.observe(batch, labels)
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--kinds", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(
        "prequential accuracy (%), that of the last 1,000, seconds; batches of ten, one thread; 0.1 is a learning rate"
    )
    for name, (kind, (x, y)) in streams(given.data, given.kinds).items():
        print(
            f"\n{kind}: {name}, {len(y):,} samples of {tuple(x.shape[1:])}, {len(set(y.tolist()))} classes", flush=True
        )
        for settings, make in LEARNERS[kind].items():
            torch.manual_seed(0)
            learner, start = make(), time.process_time()
            right = prequential(learner, x, y)
            seconds = time.process_time() - start
            said = learner.settings.method.name if settings == "default" else ""
            line = (
                f"  {settings:<16}{100 * right.mean():>7.2f}{100 * right[-LAST:].mean():>7.1f}{seconds:>8.1f}s  {said}"
            )
            print(line.rstrip(), flush=True)


if __name__ == "__main__":
    main()
