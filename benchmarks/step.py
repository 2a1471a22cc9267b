"""How much slower is an online step here than the same arithmetic written by hand?

    python benchmarks/step.py [--steps 2000] [--rounds 9]

Experience replay with an MLP 784-256-256-10: ten new samples and ten from memory, SGD, one thread. Both sides do the
same forward and backward passes, draw from a memory of 1,000 without replacement, and write the new samples into
it. They take turns in one process, so that a busy machine slows both; the ratio is that of the medians over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast import Learner

BATCH, REPLAY, CAPACITY, N_INPUTS, N_CLASSES = 10, 10, 1000, 784, 10


def by_hand(x: Tensor, y: Tensor) -> float:
    """Seconds for a plain loop of experience replay over batches x (steps, n, 784), y (steps, n)."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(N_INPUTS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, N_CLASSES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory_x = torch.empty(CAPACITY, N_INPUTS, dtype=x.dtype)
    memory_y = torch.empty(CAPACITY, dtype=torch.int64)
    seen = 0
    started = time.perf_counter()
    for new_x, new_y in zip(x, y, strict=True):
        filled = min(seen, CAPACITY)
        loss = F.cross_entropy(model(new_x.float() / 255), new_y)
        if filled:
            drawn = torch.randperm(filled)[:REPLAY]
            loss = F.cross_entropy(model(memory_x[drawn].float() / 255), memory_y[drawn]) + loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        for i, u in enumerate(torch.rand(len(new_y)).tolist()):  # reservoir
            slot = seen if seen < CAPACITY else int(u * (seen + 1))
            if slot < CAPACITY:
                memory_x[slot], memory_y[slot] = new_x[i], new_y[i]
            seen += 1
    return time.perf_counter() - started


def holdfast(x: Tensor, y: Tensor) -> float:
    """Seconds for the same with a Learner, checks at the door included."""
    learner = Learner("er", n_classes=N_CLASSES, input_shape=(N_INPUTS,), memory=CAPACITY, replay_size=REPLAY, lr=0.1)
    started = time.perf_counter()
    for new_x, new_y in zip(x, y, strict=True):
        learner.observe(new_x, new_y)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (arguments.steps, BATCH, N_INPUTS), dtype=torch.uint8, generator=generator)
    y = torch.randint(N_CLASSES, (arguments.steps, BATCH), generator=generator)
    by_hand(x[:100], y[:100]), holdfast(x[:100], y[:100])  # warm up
    hand_seconds, our_seconds = [], []
    for _ in range(arguments.rounds):
        hand_seconds.append(by_hand(x, y))
        our_seconds.append(holdfast(x, y))
    hand, ours = (1e6 * statistics.median(s) / arguments.steps for s in (hand_seconds, our_seconds))
    print(f"by hand  {hand:7.1f} µs a step")
    print(f"holdfast {ours:7.1f} µs a step")
    print(f"ratio    {ours / hand:7.3f}")


if __name__ == "__main__":
    main()
