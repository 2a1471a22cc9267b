"""How much slower is an online step here than the same arithmetic written by hand, and DRR's than ER's?

    python benchmarks/step.py [--steps 2000] [--rounds 9] [--replay 10] [--backbone mlp]

An MLP 784-256-256-10, or the reduced ResNet-18 on 32x32 pictures; ten new samples and some from memory, SGD, one
thread. The loop by hand is experience replay: it
does the same forward and backward passes as `er`, draws from a memory of 1,000 without replacement, and writes the new
samples into it. All take turns in one process, so that a busy machine slows them alike; ratios are of the medians over
rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast import Learner
from holdfast.backbones.reduced_resnet18 import ReducedResnet18
from holdfast.methods._base import ReplayMethod

BATCH, CAPACITY, N_CLASSES = 10, 1000, 10
SHAPES = {"mlp": (784,), "reduced_resnet18": (3, 32, 32)}
LR = {"mlp": 0.1, "reduced_resnet18": 0.03}


def network(backbone: str) -> nn.Module:
    if backbone == "mlp":
        return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, N_CLASSES))
    return nn.Sequential(ReducedResnet18(SHAPES[backbone]), nn.Linear(160, N_CLASSES))


def by_hand(backbone: str, x: Tensor, y: Tensor, replay: int) -> float:
    """Seconds for a plain loop of experience replay over batches x (steps, n, …), y (steps, n)."""
    torch.manual_seed(0)
    model = network(backbone)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR[backbone])
    memory_x = torch.empty(CAPACITY, *x.shape[2:], dtype=x.dtype)
    memory_y = torch.empty(CAPACITY, dtype=torch.int64)
    seen = 0
    started = time.perf_counter()
    for new_x, new_y in zip(x, y, strict=True):
        filled = min(seen, CAPACITY)
        loss = F.cross_entropy(model(new_x.float() / 255), new_y)
        if filled:
            drawn = torch.randperm(filled)[:replay]
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


def holdfast(method: str, backbone: str, x: Tensor, y: Tensor, replay: int) -> tuple[float, float]:
    """Seconds for a Learner, checks at the door included, and how many of them its selection took."""
    selection = {"name": "centroid", "per_class": 25} if method == "drr" else "reservoir"
    learner = Learner(
        method,
        backbone=backbone,
        n_classes=N_CLASSES,
        input_shape=SHAPES[backbone],
        memory=CAPACITY,
        selection=selection,
        replay_size=replay,
        lr=LR[backbone],
    )
    assert isinstance(learner.method, ReplayMethod)
    update, selecting = learner.method.selection.update, 0.0

    def timed_update(*arguments: object) -> None:
        nonlocal selecting
        began = time.perf_counter()
        update(*arguments)  # type: ignore[arg-type]
        selecting += time.perf_counter() - began

    learner.method.selection.update = timed_update  # type: ignore[method-assign, assignment]
    started = time.perf_counter()
    for new_x, new_y in zip(x, y, strict=True):
        learner.observe(new_x, new_y)
    return time.perf_counter() - started, selecting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--replay", type=int, default=10)
    parser.add_argument("--backbone", choices=sorted(SHAPES), default="mlp")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    # Digits would do, but have to be there: clouds of bytes around a centre for each class learn alike.
    shape = SHAPES[arguments.backbone]
    y = torch.randint(N_CLASSES, (arguments.steps, BATCH), generator=generator)
    centres = torch.randint(256, (N_CLASSES, *shape), generator=generator)
    noise = torch.randint(-100, 101, (arguments.steps, BATCH, *shape), generator=generator)
    x = (centres[y] + noise).clamp(0, 255).to(torch.uint8)

    given = (arguments.backbone, x, y, arguments.replay)
    by_hand(arguments.backbone, x[:100], y[:100], arguments.replay)  # warm up
    seconds: dict[str, list[float]] = {"by hand": [], "er": [], "drr": [], "cos": []}
    for _ in range(arguments.rounds):
        seconds["by hand"].append(by_hand(*given))
        seconds["er"].append(holdfast("er", *given)[0])
        in_all, selecting = holdfast("drr", *given)
        seconds["drr"].append(in_all)
        seconds["cos"].append(selecting)
    median = {name: 1e6 * statistics.median(times) / arguments.steps for name, times in seconds.items()}
    print(f"{arguments.backbone}, {BATCH} new samples and {arguments.replay} replayed, ", end="")
    print(f"{arguments.rounds} rounds of {arguments.steps} steps")
    for name in ("by hand", "er", "drr"):
        print(f"{name:<8} {median[name]:8.1f} µs a step")
    print(f"ratio    {median['er'] / median['by hand']:8.3f} er to by hand")
    share = median["cos"] / median["drr"]
    print(f"drr      {median['drr'] / median['er']:8.3f} times er, {share:.1%} of it its selection")


if __name__ == "__main__":
    main()
