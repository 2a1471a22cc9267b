"""How often do the scores that DER has stored name a sample's class, among the classes of its task?

    python benchmarks/stored_scores.py runs/split_cifar100/der/1234-…

Reads the last checkpoint of a run of `der`. What DER learns from is as good as these scores, whatever its weight.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from holdfast.core.checkpoint import read_checkpoint
from holdfast.experiments.run import CHECKPOINT


def main() -> None:
    memory = read_checkpoint(Path(sys.argv[1]) / CHECKPOINT)["learner"]["method"]["memory"]["columns"]
    y, task, logits = memory["y"], memory["task"], memory["extra.logits"]
    right = torch.zeros(len(y), dtype=torch.bool)
    for t in task.unique():
        rows, classes = task == t, y[task == t].unique()
        right[rows] = classes[logits[rows][:, classes].argmax(dim=1)] == y[rows]
    shares = [f"{right[task == t].float().mean():.0%}" for t in task.unique()]
    print(f"{right.float().mean():.1%} of {len(y)} stored samples; by task: {' '.join(shares)}")


if __name__ == "__main__":
    main()
