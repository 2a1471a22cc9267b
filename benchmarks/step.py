"""How much slower is an online step here than the same arithmetic written by hand, and DRR's than ER's?

    python benchmarks/step.py [--steps 2000] [--rounds 9] [--replay 10] [--passes 2] [--backbone mlp]

An MLP 784-256-256-10, or the reduced ResNet-18 on 32x32 pictures; ten new samples and some from memory, SGD, one
thread. The loop by hand is experience replay: it does the same forward and backward passes as `er`, draws from a memory
of 1,000 without replacement, and writes the new samples into it. With --passes 1 all take new and replayed samples in
one pass. `er without` is `er` whose observe is no transaction: nothing is written down to be undone, and no weight is
checked. Times are those of the processor, so that waiting for it does not count. All take turns in one process, so that
a busy machine slows them alike. A ratio is the median over rounds of the ratios of two that ran one after the other. At
the end come a batch of one vector of 384 numbers, and readers beside a thread that observes, by the clock.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

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


def by_hand(backbone: str, x: Tensor, y: Tensor, replay: int, passes: int) -> float:
    """Seconds for a plain loop of experience replay over batches x (steps, n, …), y (steps, n)."""
    torch.manual_seed(0)
    model = network(backbone)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR[backbone])
    memory_x = torch.empty(CAPACITY, *x.shape[2:], dtype=x.dtype)
    memory_y = torch.empty(CAPACITY, dtype=torch.int64)
    seen = 0
    started = time.thread_time()
    for new_x, new_y in zip(x, y, strict=True):
        filled = min(seen, CAPACITY)
        drawn = torch.randperm(filled)[:replay]
        if passes == 2 or not filled:
            loss = F.cross_entropy(model(new_x.float() / 255), new_y)
            if filled:
                loss = F.cross_entropy(model(memory_x[drawn].float() / 255), memory_y[drawn]) + loss
        else:
            scores = model(torch.cat([memory_x[drawn], new_x]).float() / 255)
            losses = F.cross_entropy(scores, torch.cat([memory_y[drawn], new_y]), reduction="none")
            loss = losses[: len(drawn)].mean() + losses[len(drawn) :].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        for i, u in enumerate(torch.rand(len(new_y)).tolist()):  # reservoir
            slot = seen if seen < CAPACITY else int(u * (seen + 1))
            if slot < CAPACITY:
                memory_x[slot], memory_y[slot] = new_x[i], new_y[i]
            seen += 1
    return time.thread_time() - started


class Bare(Learner):
    """A learner whose changes are no transactions; `holdfast` takes its checks of weights away."""

    def change(self, action: Callable[[], Any]) -> Any:
        return action()


def holdfast(
    kind: type[Learner], method: str, backbone: str, x: Tensor, y: Tensor, replay: int, passes: int
) -> tuple[float, float]:
    """Seconds for a Learner, checks at the door included, and how many of them its selection took."""
    selection = {"name": "centroid", "per_class": 25} if method == "drr" else "reservoir"
    learner = kind(
        method,
        passes=passes,
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
        began = time.thread_time()
        update(*arguments)  # type: ignore[arg-type]
        selecting += time.thread_time() - began

    learner.method.selection.update = timed_update  # type: ignore[method-assign, assignment]
    no_checks = patch.object(type(learner.method), "check_finite", lambda _: None) if kind is Bare else nullcontext()
    with no_checks:
        started = time.thread_time()
        for new_x, new_y in zip(x, y, strict=True):
            learner.observe(new_x, new_y)
        return time.thread_time() - started, selecting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--replay", type=int, default=10)
    parser.add_argument("--passes", type=int, choices=(1, 2), default=2)
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

    given = (arguments.backbone, x, y, arguments.replay, arguments.passes)
    by_hand(arguments.backbone, x[:100], y[:100], arguments.replay, arguments.passes)  # warm up
    seconds: dict[str, list[float]] = {"by hand": [], "er without": [], "er": [], "drr": [], "cos": []}
    for i in range(arguments.rounds):
        seconds["by hand"].append(by_hand(*given))
        for kind in (Bare, Learner) if i % 2 else (Learner, Bare):
            seconds["er" if kind is Learner else "er without"].append(holdfast(kind, "er", *given)[0])
        in_all, selecting = holdfast(Learner, "drr", *given)
        seconds["drr"].append(in_all)
        seconds["cos"].append(selecting)
    median = {name: 1e6 * statistics.median(times) / arguments.steps for name, times in seconds.items()}
    print(
        f"{arguments.backbone}, {BATCH} new samples and {arguments.replay} replayed in {arguments.passes} pass(es), ",
        end="",
    )
    print(f"{arguments.rounds} rounds of {arguments.steps} steps")
    for name in ("by hand", "er without", "er", "drr"):
        print(f"{name:<10} {median[name]:8.1f} µs a step")

    def ratio(one: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))

    print(f"ratio      {ratio('er', 'by hand'):8.3f} er to by hand")
    print(f"undo       {ratio('er', 'er without'):8.3f} times er without it")
    print(f"drr        {ratio('drr', 'er'):8.3f} times er, {ratio('cos', 'drr'):.1%} of it its selection")
    if arguments.backbone == "mlp":
        one_vector()
        beside_readers()


def one_vector(n: int = 1000) -> None:
    """Print the time of an observe and of a predict of one vector of 384 numbers."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(n, 1, 384, generator=generator), torch.randint(N_CLASSES, (n, 1), generator=generator)
    learner = Learner("er", n_classes=N_CLASSES, lr=0.01)
    observing, predicting = [], []
    for new_x, new_y in zip(x, y, strict=True):
        began = time.thread_time()
        learner.observe(new_x, new_y)
        between = time.thread_time()
        learner.predict(new_x)
        observing.append(between - began)
        predicting.append(time.thread_time() - between)
    times = (1e6 * statistics.median(each[n // 10 :]) for each in (observing, predicting))
    print("one vector of 384: observe {:.0f} µs, predict {:.0f} µs".format(*times))


def beside_readers(n: int = 400) -> None:
    """Print how much slower observes are while two threads predict, from the learner or from snapshots."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, BATCH, 784, generator=generator)
    y = torch.randint(N_CLASSES, (n, BATCH), generator=generator)

    def seconds_beside(read: Callable[[Learner], object] | None) -> float:
        learner, over = Learner("er", n_classes=N_CLASSES, lr=0.01), threading.Event()
        learner.observe(x[0], y[0])

        def loop() -> None:
            while not over.is_set() and read is not None:
                read(learner)
                over.wait(0.001)  # a reader does something else, too

        threads = [threading.Thread(target=loop) for _ in range(2)]
        for thread in threads:
            thread.start()
        began = time.perf_counter()
        for new_x, new_y in zip(x, y, strict=True):
            learner.observe(new_x, new_y)
        took = time.perf_counter() - began
        over.set()
        for thread in threads:
            thread.join()
        return took

    alone = seconds_beside(None)
    predicting = seconds_beside(lambda learner: learner.predict(x[0]))
    copying = seconds_beside(lambda learner: learner.snapshot().predict(x[0]))
    print(f"observe beside two threads that predict: {predicting / alone:.2f} times alone", end=", ")
    print(f"that take a snapshot each time: {copying / alone:.2f}")


if __name__ == "__main__":
    main()
