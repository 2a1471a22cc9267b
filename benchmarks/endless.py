"""Do memory and time of a step stay flat over 200,000 small batches?

    python benchmarks/endless.py [--batches 200000] [--methods er drr hedge] > results/endless.txt

A stream without end of vectors with 20 numbers, 10 samples a batch, 5 classes whose means wander. Between the steps
that are timed stands the same matrix product, over and over: its time says how busy the machine was, and step times
are given in it. Each of ten windows shows the median step, and the resident memory at its end; the first window is
left out of the comparison, since the memory is being filled in it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from pathlib import Path

import torch

from holdfast import Learner

N_FEATURES, N_CLASSES, BATCH, WINDOWS, TIMED = 20, 5, 10, 10, 5


def resident() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def watched(method: str, n_batches: int) -> None:
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(0)
    backbone = "identity" if method == "hedge" else "mlp"
    learner = Learner(method, backbone=backbone, lr=0.05)
    means = 2 * torch.randn(N_CLASSES, N_FEATURES, generator=rng)
    product = torch.randn(128, 128, generator=rng)
    per_window = n_batches // WINDOWS
    print(f"{method}: window, batches, median step in µs, in reference products, resident MB", flush=True)
    steps, memory = [], []
    for window in range(WINDOWS):
        taken, reference = [], []
        for i in range(per_window):
            means += 0.002 * torch.randn(N_CLASSES, N_FEATURES, generator=rng)
            y = torch.randint(N_CLASSES, (BATCH,), generator=rng)
            x = means[y] + torch.randn(BATCH, N_FEATURES, generator=rng)
            if i % TIMED:
                learner.observe(x, y)
                continue
            start = time.perf_counter()
            product @ product
            between = time.perf_counter()
            learner.observe(x, y)
            taken.append(time.perf_counter() - between)
            reference.append(between - start)
        step = statistics.median(taken)
        steps.append(step / statistics.median(reference))
        memory.append(resident())
        print(
            f"{window:>3}{(window + 1) * per_window:>9}{1e6 * step:>9.1f}{steps[-1]:>9.1f}{memory[-1]:>9.1f}",
            flush=True,
        )
    early, late = statistics.mean(steps[1:4]), statistics.mean(steps[-3:])
    print(
        f"{method}: last three windows to windows 2 to 4: step {late / early:.3f}, resident memory "
        f"{statistics.mean(memory[-3:]) / statistics.mean(memory[1:4]):.3f}\n",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200_000)
    parser.add_argument("--methods", nargs="+", default=["er", "drr", "hedge"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{given.batches:,} batches of {BATCH} samples with {N_FEATURES} numbers, one thread\n")
    for method in given.methods:
        watched(method, given.batches)


if __name__ == "__main__":
    main()
