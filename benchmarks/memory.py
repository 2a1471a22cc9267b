"""What does each method keep in memory while it learns? The terms of the paper's last table, counted.

    python benchmarks/memory.py --without mer --old-tasks 16 --warm-steps 30
    python benchmarks/memory.py --without mer --old-tasks 16 --warm-steps 8 --recipe split_cifar100

Every row of a recipe learns made-up samples of the recipe's shape, here until its memory is full. Then, in megabytes:

    2P            weights and their gradients
    (B+M)H        what a step keeps of its passes for the way back, at most at once
    samples       stored pictures or vectors with their classes and tasks
    features      stored with them (MH̃), and centroids (CH̃)
    logits        stored with them (ML)
    own           whatever else the method keeps from step to step: importances, anchors, averages

The gradients that GEM and its kin hold side by side within a step are not counted.

Prints a table in Markdown.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn

from holdfast import Learner
from holdfast.experiments.tables import markdown
from holdfast.methods._base import ReplayMethod
from methods import BATCH, parser_of, warm_learners

TERMS = ["2P", "(B+M)H", "samples", "features", "logits", "own"]


class Ledger:
    """How many bytes wait for the way back; a tensor counts once, however many passes wait for it."""

    def __init__(self) -> None:
        self.waiting: Counter[int] = Counter()  # by storage
        self.now = self.most = 0

    def enter(self, storage: UntypedStorage) -> None:
        if not self.waiting[storage.data_ptr()]:
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
        self.waiting[storage.data_ptr()] += 1

    def leave(self, storage: UntypedStorage) -> None:
        self.waiting[storage.data_ptr()] -= 1
        if not self.waiting[storage.data_ptr()]:
            self.now -= storage.nbytes()


class Waiting:
    """A tensor in the ledger for as long as this lives."""

    def __init__(self, tensor: Tensor, ledger: Ledger) -> None:
        self.tensor, self.ledger = tensor, ledger
        ledger.enter(tensor.untyped_storage())

    def __del__(self) -> None:
        self.ledger.leave(self.tensor.untyped_storage())


def hidden_bytes(learner: Learner, x: Tensor, y: Tensor, task: int) -> int:
    """The most that a step keeps at once for its way back, without the weights."""
    ledger = Ledger()
    for parameter in learner.method.parameters():
        ledger.waiting[parameter.untyped_storage().data_ptr()] += 1
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: Waiting(tensor, ledger), lambda kept: kept.tensor):
        learner.observe(x, y, task)
    return ledger.most


def n_bytes(tree: Any) -> int:
    """Of all tensors in a state."""
    if isinstance(tree, Tensor):
        return tree.nbytes
    branches = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return sum(n_bytes(branch) for branch in branches)


def counted(learner: Learner, x: Tensor, y: Tensor, task: int) -> dict[str, int]:
    """Bytes by term."""
    hidden = hidden_bytes(learner, x, y, task)
    networks = {name for name, value in vars(learner.method).items() if isinstance(value, nn.Module)}
    state = {name: value for name, value in learner.method.state_dict().items() if name not in networks}
    columns = state["memory"]["columns"] if "memory" in state else {}
    centres = state.get("selection", {}).get("centres", {})
    stored = {name: n_bytes(column) for name, column in columns.items()}
    return {
        "2P": 2 * sum(parameter.nbytes for parameter in learner.method.parameters()),
        "(B+M)H": hidden,
        "samples": sum(stored.get(name, 0) for name in ("x", "y", "task")),
        "features": stored.get("extra.feature", 0) + n_bytes(centres),
        "logits": stored.get("extra.logits", 0),
        "own": n_bytes(state) - n_bytes(columns) - n_bytes(centres),
    }


def main() -> None:
    arguments = parser_of(__doc__).parse_args()
    torch.set_num_threads(1)
    learners, made = warm_learners(arguments, replay=1)
    lines = []
    for row, learner in learners.items():
        if isinstance(learner.method, ReplayMethod):
            learner.method.replay_size = arguments.replay
        terms = counted(learner, *made.batch(arguments.old_tasks), arguments.old_tasks)
        lines.append([row, *(f"{terms[term] / 1e6:.2f}" for term in TERMS), f"{sum(terms.values()) / 1e6:.1f}"])
    print(f"`{arguments.recipe}`, {BATCH} new samples, {arguments.replay} replayed, megabytes:\n")
    print(markdown((["row", *TERMS, "in all"], lines)))


if __name__ == "__main__":
    main()
