"""Does a step of COS stay flat as its slots fill: 1,000, 10,000 and 100,000 of them?

    python benchmarks/slots.py [--features 160] [--classes 10] > results/slots.txt

Features are given, so nothing but the selection is timed: `update` of 100 new samples in a memory that is full. The
classes are blobs that wander. The sizes take turns, so that a busy machine slows them alike.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from holdfast import Learner
from holdfast.core.batch import NO_TASK, Batch
from holdfast.methods._base import ReplayMethod

SIZES = (1_000, 10_000, 100_000)
BATCH = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=160)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(0)
    means = torch.randn(given.classes, given.features, generator=rng)
    methods = []

    def batch(n: int) -> Batch:
        nonlocal means
        means = means + 0.01 * torch.randn(means.shape, generator=rng)
        y = torch.randint(given.classes, (n,), generator=rng)
        x = means[y] + 0.3 * torch.randn(n, given.features, generator=rng)
        return Batch(x, y, torch.full((n,), NO_TASK))

    for size in SIZES:
        learner = Learner(
            "er", selection="centroid", backbone="identity", memory=size, input_shape=(given.features,),
            n_classes=given.classes,
        )  # fmt: skip
        method = learner.method
        assert isinstance(method, ReplayMethod)
        method.model.seen.add(torch.arange(given.classes), torch.full((given.classes,), NO_TASK))
        start = time.perf_counter()
        while len(method.memory) < size:
            method.remember(batch(BATCH))
        for _ in range(10):  # evictions settle
            method.remember(batch(BATCH))
        print(f"{size:>8} slots filled in {time.perf_counter() - start:.1f} s", flush=True)
        methods.append(method)
    taken: list[list[float]] = [[] for _ in SIZES]
    for _ in range(given.rounds):
        for place, method in enumerate(methods):
            new = batch(BATCH)
            start = time.perf_counter()
            method.remember(new)
            taken[place].append(1000 * (time.perf_counter() - start))
    print(f"slots, ms of a step of {BATCH} samples (median of {given.rounds}, and quartiles)")
    for size, times in zip(SIZES, taken, strict=True):
        low, middle, high = statistics.quantiles(times, n=4)
        print(f"{size:>8}{middle:>9.2f}{low:>9.2f}{high:>9.2f}")


if __name__ == "__main__":
    main()
