"""How many steps a second does experience replay make in Avalanche and here, beside a plain loop?

    python benchmarks/avalanche.py [--environment .venv-avalanche] [--steps 200] [--rounds 21]

Avalanche needs torchvision, whose wheels on the package index are linked to CUDA: beside a build of torch for CPUs they
fail when they are imported. So Avalanche gets an environment of its own, with the build of torch for GPUs, of six
gigabytes; it is made the first time. The tests of the adapters run there first.

An MLP 784-256-256-10, ten new samples and ten from a memory of 1,000, SGD, one thread. The plain loop makes one pass
over the twenty samples, draws without replacement, and writes the new samples by reservoir sampling. In each
environment, library and plain loop take turns in one process. A share is the plain loop's time divided by the
library's; all numbers are medians over rounds. Avalanche has a stream of experiences of ten samples, no metrics and
no loggers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
PACKAGES = ["avalanche-lib==0.6.0", "torch==2.15.0", "torchvision==0.29.2", "numpy==2.4.6"]
FOR_THE_TESTS = ["safetensors", "typer", "rich", "pydantic", "pillow", "pytest", "hypothesis"]
BATCH, REPLAY, CAPACITY, N_FEATURES, N_CLASSES, LR = 10, 10, 1000, 784, 10, 0.1


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(N_FEATURES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, N_CLASSES)]
    return nn.Sequential(*layers)


def plain(x: Tensor, y: Tensor) -> float:
    """Return the seconds of a plain loop over batches x (steps, n, d), y (steps, n)."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    memory_x, memory_y = torch.empty(CAPACITY, N_FEATURES), torch.empty(CAPACITY, dtype=torch.int64)
    seen = 0
    started = time.perf_counter()
    for new_x, new_y in zip(x, y, strict=True):
        drawn = torch.randperm(min(seen, CAPACITY))[:REPLAY]
        scores = model(torch.cat([new_x, memory_x[drawn]]))
        loss = F.cross_entropy(scores, torch.cat([new_y, memory_y[drawn]]))
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


def ours(x: Tensor, y: Tensor) -> float:
    """Return the seconds of a Learner, checks of its inputs included."""
    from holdfast import Learner

    learner = Learner("er", input_shape=(N_FEATURES,), n_classes=N_CLASSES, memory=CAPACITY, replay_size=REPLAY, lr=LR)
    started = time.perf_counter()
    for new_x, new_y in zip(x, y, strict=True):
        learner.observe(new_x, new_y)
    return time.perf_counter() - started


def theirs(x: Tensor, y: Tensor) -> float:
    """Return the seconds of Avalanche's replay plug-in with its reservoir."""
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.benchmarks.scenarios.online import split_online_stream
    from avalanche.benchmarks.utils import as_classification_dataset
    from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
    from avalanche.training.storage_policy import ReservoirSamplingBuffer
    from avalanche.training.supervised import Naive

    data = torch.utils.data.TensorDataset(x.flatten(0, 1), y.flatten())
    data.targets = y.flatten().tolist()  # type: ignore[attr-defined]  # by which Avalanche knows the classes
    made = benchmark_from_datasets(train=[as_classification_dataset(data)], test=[as_classification_dataset(data)])
    model = network()
    policy = ReservoirSamplingBuffer(CAPACITY)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=LR),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=BATCH,
        train_epochs=1,
        plugins=[ReplayPlugin(CAPACITY, batch_size=BATCH, batch_size_mem=REPLAY, storage_policy=policy)],
        evaluator=EvaluationPlugin(),
    )
    parts = list(split_online_stream(made.train_stream, experience_size=BATCH, shuffle=False))
    assert len(parts) == len(x)
    started = time.perf_counter()
    for part in parts:
        strategy.train(part)
    return time.perf_counter() - started


def shares(library: Callable[[Tensor, Tensor], float], steps: int, rounds: int) -> dict[str, float]:
    """Measure a library and the plain loop in turns; give steps a second of both and the share."""
    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(steps, BATCH, N_FEATURES, generator=rng)
    y = torch.randint(N_CLASSES, (steps, BATCH), generator=rng)
    few = max(1, steps // 20)
    for function in (library, plain):  # until caches are warm
        function(x[:few], y[:few])
    pairs = [(library(x, y), plain(x, y)) for _ in range(rounds)]
    seconds, by_hand = (statistics.median(column) for column in zip(*pairs, strict=True))
    share = statistics.median(other / one for one, other in pairs)  # a busy machine slows both of a round
    return {"steps": steps / seconds, "plain": steps / by_hand, "share": share}


def made_environment(folder: Path) -> Path:
    """Return the Python of the environment with Avalanche, which is made if it is not there."""
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        print(f"making {folder}: some minutes, six gigabytes")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True)
        subprocess.run([*pip, *FOR_THE_TESTS], check=True)
        ready.touch()
    return python


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-avalanche")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--worker", choices=["ours", "theirs"])
    asked = parser.parse_args()
    if asked.worker:
        library = ours if asked.worker == "ours" else theirs
        print(json.dumps(shares(library, asked.steps, asked.rounds)))
        return

    python = made_environment(asked.environment.absolute())
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/adapters/test_avalanche.py"]
    subprocess.run([str(python), *tests], check=True, cwd=ROOT, env=environment)
    # -P, since the folder of this file comes first otherwise, and its name is that of the package.
    for name, interpreter in (("theirs", str(python)), ("ours", sys.executable)):
        sizes = ["--steps", str(asked.steps), "--rounds", str(asked.rounds)]
        command = [interpreter, "-P", "-W", "ignore", __file__, "--worker", name, *sizes]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        found = json.loads(done.stdout.splitlines()[-1])
        label = "Avalanche" if name == "theirs" else "Holdfast"
        print(
            f"{label:<10} {found['steps']:7.0f} steps a second, plain loop {found['plain']:7.0f}: "
            f"share {found['share']:.3f}"
        )


if __name__ == "__main__":
    main()
