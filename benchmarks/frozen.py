"""How many samples a second do the methods on frozen features learn, with and without a predict after every batch?

    python benchmarks/frozen.py [--features 1280] [--classes 200] [--samples 6000] [--methods slda ncm]

Made-up features, as a network's: none below zero, correlated, of classes that come ten at a time. Batches of 10, one
thread. Times are of the processor, not of the clock, since a machine may be shared; a product of two matrices is timed
beside them, to compare machines. The exactness is the largest difference of the scores after a batch to those worked
out anew from the sums, relative to the largest score.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor

from holdfast import Learner
from holdfast.methods.slda import Slda

BATCH = 10


def made(n_samples: int, n_features: int, n_classes: int) -> tuple[Tensor, Tensor]:
    """(n, n_features) features and (n,) classes, ten new ones in each part of the stream."""
    rng = torch.Generator().manual_seed(0)
    per_group = n_samples * 10 // n_classes
    y = torch.arange(n_samples) // per_group * 10 + torch.randint(10, (n_samples,), generator=rng)
    y = y.clamp(max=n_classes - 1)
    mixing = torch.randn(n_features // 4, n_features, generator=rng) / n_features**0.5
    centres = torch.randn(n_classes, n_features, generator=rng) / 4
    x = torch.randn(n_samples, n_features // 4, generator=rng) @ mixing + centres[y]
    return (x + 0.1 * torch.randn(n_samples, n_features, generator=rng)).relu(), y


def samples_per_second(method: str, x: Tensor, y: Tensor, *, predict: bool) -> tuple[float, Learner]:
    """How many are learned in a second of the processor; what waits to be summed is summed within it."""
    learner = Learner(method, backbone="identity", n_classes=int(y.max()) + 1)
    started = time.process_time()
    for i in range(0, len(x), BATCH):
        if predict and i:
            learner.predict(x[i : i + BATCH])
        learner.observe(x[i : i + BATCH], y[i : i + BATCH])
    learner.state_dict()
    return len(x) / (time.process_time() - started), learner


def inexactness(x: Tensor, y: Tensor) -> float:
    """The largest difference of slda's scores on the way to those from the sums alone."""
    learner = Learner("slda", backbone="identity", n_classes=int(y.max()) + 1, input_shape=x.shape[1:])
    method, worst = learner.method, 0.0
    assert isinstance(method, Slda)
    for i in range(0, len(x) - BATCH, BATCH):
        learner.observe(x[i : i + BATCH], y[i : i + BATCH])
        method.work_out()
        if i % (30 * BATCH) == 0:
            asked = x[i + BATCH : i + 2 * BATCH].double()
            scores = method.sum_scores(asked)
            learner.state_dict()  # which forgets what was worked out
            method.work_out()
            again = method.sum_scores(asked)
            worst = max(worst, ((scores - again).abs().max() / again.abs().max()).item())
    return worst


def gigaflops() -> float:
    """Of a product of two matrices in float64."""
    a = torch.randn(1024, 1280, dtype=torch.float64)
    out = torch.empty(1280, 1280, dtype=torch.float64)
    times = []
    for _ in range(5):
        started = time.process_time()
        torch.mm(a.T, a, out=out)
        times.append(time.process_time() - started)
    return 2e-9 * 1280 * 1280 * 1024 / statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=1280)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--methods", nargs="+", default=["ncm", "slda"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    x, y = made(arguments.samples, arguments.features, arguments.classes)
    print(
        f"{arguments.features} features, {arguments.classes} classes, batches of {BATCH}, {len(x)} samples, one thread"
    )
    for method in arguments.methods:
        samples_per_second(method, x[:200], y[:200], predict=True)  # warm up
        learned, learner = samples_per_second(method, x, y, predict=False)
        predicted, _ = samples_per_second(method, x, y, predict=True)
        kept = sum(part.nbytes for part in [learner.method.sums]) / 1e6 if hasattr(learner.method, "sums") else 0.0
        print(
            f"{method:<8} {learned:8.0f} samples/s learned, {predicted:8.0f} with a predict after every batch", end=""
        )
        print(f", {kept:.1f} MB of sums, while a product of matrices had {gigaflops():.0f} GFLOPS")
    if "slda" in arguments.methods:
        print(f"slda     {inexactness(x[:2000], y[:2000]):.1e} is the largest relative difference to the closed form")


if __name__ == "__main__":
    main()
