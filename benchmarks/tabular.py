"""Prequential accuracy and time on tables of raw columns: this package's defaults beside River's learners.

    python benchmarks/tabular.py [--data DIR] [--rows 10000] [--streams NAME …] [--without NAME …]

Each batch of ten rows is predicted before it is learned, by every learner alike. All settings are defaults. DIR holds
the streams `streams/elec.csv` and `streams/sea_stream.csv`, which are learned whole. The other streams are River's
generators, of `--rows` rows each; one that is called `drift` changes its concept suddenly in the middle.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BATCH = 10
Row = tuple[dict[str, Any], Any]
FILES = {"electricity": ("elec.csv", "target"), "sea": ("sea_stream.csv", "class")}


def generators() -> dict[str, Callable[[], Any]]:
    """Return River's generators by name."""
    from river.datasets import synth

    def drift(one: Any, other: Any) -> Callable[[], Any]:
        return lambda: synth.ConceptDriftStream(one, other, position=-1, width=50, seed=1)

    return {
        "agrawal": lambda: synth.Agrawal(classification_function=4, seed=1),
        "agrawal_drift": drift(
            synth.Agrawal(classification_function=0, seed=1), synth.Agrawal(classification_function=6, seed=1)
        ),
        "led": lambda: synth.LED(seed=1, noise_percentage=0.1),
        "rbf": lambda: synth.RandomRBFDrift(
            seed_model=1, seed_sample=1, n_classes=4, n_features=10, n_centroids=30, change_speed=0.0005
        ),
        "hyperplane": lambda: synth.Hyperplane(seed=1, n_features=10, n_drift_features=5, mag_change=0.001),
        "stagger_drift": drift(
            synth.STAGGER(classification_function=0, seed=1), synth.STAGGER(classification_function=2, seed=1)
        ),
        "sine_drift": drift(
            synth.Sine(classification_function=0, seed=1), synth.Sine(classification_function=3, seed=1)
        ),
        "mixed": lambda: synth.Mixed(seed=1),
        "waveform": lambda: synth.Waveform(seed=1),
        "tree": lambda: synth.RandomTree(seed_tree=1, seed_sample=1),
    }


def read(path: Path, label: str) -> list[Row]:
    """Return the rows of a CSV file, numbers as numbers."""
    with path.open(newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    return [({name: value for name, value in row.items() if name != label}, int(row[label])) for row in rows]


def generated(make: Callable[[], Any], n: int) -> list[Row]:
    stream = make()
    if hasattr(stream, "position"):
        stream.position = n // 2
    return list(itertools.islice(((dict(x), y) for x, y in stream), n))


def ours_table(rows: list[Row]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Predict and learn with `TableLearner` and its defaults."""
    from holdfast.tables import TableLearner

    learner = TableLearner("label")
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        said = learner.predict([x for x, _ in batch]) if start else [None] * len(batch)
        learner.observe([{**x, "label": y} for x, y in batch])
        yield said, [y for _, y in batch]


def ours_learner(rows: list[Row]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Predict and learn with `Learner()` on vectors of the raw numbers; a category becomes its number."""
    import numpy as np

    from holdfast import Learner

    learner = Learner()
    numbers: dict[str, dict[Any, int]] = {}

    def number(name: str, value: Any) -> float:
        if isinstance(value, str):
            known = numbers.setdefault(name, {})
            return float(known.setdefault(value, len(known)))
        return float(value)

    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        x = np.array([[number(name, value) for name, value in row.items()] for row, _ in batch], dtype=np.float32)
        y = [int(label) for _, label in batch]
        said = list(learner.predict(x).tolist()) if start else [None] * len(batch)
        learner.observe(x, y)
        yield said, y


def river(make: Callable[[], Any]) -> Callable[[list[Row]], Iterator[tuple[list[Any], list[Any]]]]:
    """Return the same for a learner of River."""

    def run(rows: list[Row]) -> Iterator[tuple[list[Any], list[Any]]]:
        model = make()
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            said = [model.predict_one(x) for x, _ in batch]
            for x, y in batch:
                model.learn_one(x, y)
            yield said, [y for _, y in batch]

    return run


def forest() -> Any:
    from river import forest

    return forest.ARFClassifier(seed=1)


def tree() -> Any:
    from river import tree

    return tree.HoeffdingAdaptiveTreeClassifier(seed=1)


def logistic() -> Any:
    from river import compose, linear_model, multiclass, preprocessing

    numbers = compose.SelectType(int, float, bool) | preprocessing.StandardScaler()
    texts = compose.SelectType(str) | preprocessing.OneHotEncoder()
    return (numbers + texts) | multiclass.OneVsRestClassifier(linear_model.LogisticRegression())


def no_change(rows: list[Row]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Say the last label known, for all rows of a batch."""
    last = None
    for start in range(0, len(rows), BATCH):
        y = [label for _, label in rows[start : start + BATCH]]
        yield [last] * len(y), y
        last = y[-1]


LEARNERS = {
    "table": ours_table,
    "learner": ours_learner,
    "forest": river(forest),
    "tree": river(tree),
    "logistic": river(logistic),
    "no_change": no_change,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--streams", nargs="*")
    parser.add_argument("--without", nargs="*", default=[], choices=list(LEARNERS))
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    made = generators()
    wanted = given.streams if given.streams is not None else [*(FILES if given.data else ()), *made]
    learners = {name: learner for name, learner in LEARNERS.items() if name not in given.without}
    print("prequential accuracy (%) and seconds of processor time, batches of ten, one thread, all settings defaults")
    print(f"{'stream':<15}{'rows':>8}" + "".join(f"{name:>17}" for name in learners), flush=True)
    for name in wanted:
        rows = (
            read(given.data / "streams" / FILES[name][0], FILES[name][1])
            if name in FILES
            else generated(made[name], given.rows)
        )
        line = f"{name:<15}{len(rows):>8}"
        for learner in learners.values():
            right, start = 0, time.process_time()
            for said, y in learner(rows):
                right += sum(a == b for a, b in zip(said, y, strict=True))
            line += f"{100 * right / len(rows):>9.2f}{time.process_time() - start:>7.1f}s"
        print(line, flush=True)


if __name__ == "__main__":
    main()
