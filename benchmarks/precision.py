"""How much faster is an online step with convolutions in bfloat16?

    python benchmarks/precision.py [--steps 20] [--rounds 7] [--replay 32]

`drr` with the reduced ResNet-18 on 32x32 pictures, ten new samples and some from memory, one thread. Both precisions
take turns in one process, so that a busy machine slows them alike; the ratio is of the medians over rounds, after one
to warm up. Processors without instructions for bfloat16 gain nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from holdfast import Learner

BATCH, SHAPE, N_CLASSES = 10, (3, 32, 32), 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--replay", type=int, default=32)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (arguments.steps, BATCH, *SHAPE), generator=generator, dtype=torch.uint8)
    y = torch.randint(N_CLASSES, (arguments.steps, BATCH), generator=generator)
    learners = {
        precision: Learner(
            "drr",
            backbone={"name": "reduced_resnet18", "precision": precision},
            memory=1000,
            replay_size=arguments.replay,
            lr=0.01,
        )
        for precision in ("float32", "bfloat16")
    }
    seconds: dict[str, list[float]] = {precision: [] for precision in learners}
    for _ in range(arguments.rounds + 1):
        for precision, learner in learners.items():
            started = time.perf_counter()
            for new_x, new_y in zip(x, y, strict=True):
                learner.observe(new_x, new_y)
            seconds[precision].append(time.perf_counter() - started)
    median = {name: 1e3 * statistics.median(times[1:]) / arguments.steps for name, times in seconds.items()}
    print(f"drr, reduced_resnet18, {BATCH} new samples and {arguments.replay} replayed, ", end="")
    print(f"{arguments.rounds} rounds of {arguments.steps} steps")
    for name, milliseconds in median.items():
        print(f"{name:<8} {milliseconds:8.1f} ms a step")
    print(f"ratio    {median['bfloat16'] / median['float32']:8.3f} bfloat16 to float32")


if __name__ == "__main__":
    main()
