"""What does each method keep in memory while it learns? The terms of the paper's last table, counted.

    python benchmarks/memory.py --without mer --old-tasks 16 --warm-steps 30
    python benchmarks/memory.py --without mer --old-tasks 16 --warm-steps 8 --recipe split_cifar100

Every row of a recipe learns made-up samples of the recipe's shape, here until its memory is full. Then, in megabytes,
what `holdfast.experiments.probes.footprint` counts; a run leaves the same with its result. Prints a table in Markdown.
"""

from __future__ import annotations

import torch

from holdfast.experiments.probes.footprint import footprint
from holdfast.experiments.tables import markdown
from holdfast.methods._base import ReplayMethod
from methods import BATCH, parser_of, warm_learners

TERMS = {
    "2P": "weights",
    "(B+M)H": "passes",
    "samples": "samples",
    "features": "features",
    "logits": "logits",
    "own": "own",
}


def main() -> None:
    arguments = parser_of(__doc__).parse_args()
    torch.set_num_threads(1)
    learners, made = warm_learners(arguments, replay=1)
    lines = []
    for row, learner in learners.items():
        if isinstance(learner.method, ReplayMethod):
            learner.method.replay_size = arguments.replay
        counted = footprint(learner, *made.batch(arguments.old_tasks), arguments.old_tasks)
        terms = [f"{getattr(counted, name) / 1e6:.2f}" for name in TERMS.values()]
        lines.append([row, *terms, f"{counted.total / 1e6:.1f}"])
    print(f"`{arguments.recipe}`, {BATCH} new samples, {arguments.replay} replayed, megabytes:\n")
    print(markdown((["row", *TERMS, "in all"], lines)))


if __name__ == "__main__":
    main()
