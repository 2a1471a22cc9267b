"""What does a step of each method cost, or with each selection, relative to plain experience replay?

    python benchmarks/methods.py [--recipe permuted_mnist] [--replay 256] [--without mer] [--old-tasks 9] [--rounds 9]
    python benchmarks/methods.py --recipe sampling --replay 32 --warm-steps 13

Every row of a recipe with its own settings but the same replay size, on made-up samples of the recipe's shape. Each
first learns a few batches of the old tasks, so that its memory has samples of all of them, or (13) is full. Then all
take turns in one process, so that a busy machine slows them alike; a ratio is the median over rounds of a row's time
over that of experience replay with `ring` in the same round. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor

from holdfast import Learner
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.tables import markdown
from holdfast.settings import options_of

# The shape of a sample, classes a task, and the row that the others are compared with.
RECIPES = {
    "permuted_mnist": ((784,), 10, "er"),
    "split_cifar100": ((3, 32, 32), 5, "er"),
    "sampling": ((3, 32, 32), 5, "ring"),
}
BATCH = 10


class Made:
    """Batches of made-up samples: bytes around a centre for each class."""

    def __init__(self, shape: tuple[int, ...], classes_per_task: int, *, shared: bool) -> None:
        self.rng = torch.Generator().manual_seed(0)
        self.shape, self.classes_per_task, self.shared = shape, classes_per_task, shared
        self.n_classes = classes_per_task if shared else 100
        self.centres = torch.randint(256, (self.n_classes, *shape), generator=self.rng)

    def batch(self, task: int) -> tuple[Tensor, Tensor]:
        label = torch.randint(self.classes_per_task, (BATCH,), generator=self.rng)
        y = label if self.shared else label + task * self.classes_per_task
        noise = torch.randint(-100, 101, (BATCH, *self.shape), generator=self.rng)
        return (self.centres[y] + noise).clamp(0, 255).to(torch.uint8), y


def warm_learners(arguments: argparse.Namespace, replay: int) -> tuple[dict[str, Learner], Made]:
    """A learner for each row that has learned a few batches of each old task, and where batches come from."""
    recipe, (shape, classes_per_task, _) = load_recipe(arguments.recipe), RECIPES[arguments.recipe]
    made = Made(shape, classes_per_task, shared=recipe.common["setting"] == "domain")
    old = [(task, *made.batch(task)) for task in range(arguments.old_tasks) for _ in range(arguments.warm_steps)]
    learners: dict[str, Learner] = {}
    for row in recipe.rows:
        experiment = recipe.experiment(row)
        if experiment.stream.name == "joint" or row in arguments.without.split(","):
            continue
        if row != "mer" and "replay_size" in options_of("methods", experiment.method.name):
            experiment = recipe.experiment(row, changes={"method.replay_size": replay})
        learner = Learner(input_shape=shape, scale=1 / 255, **experiment.learner_settings(made.n_classes))
        for task, x, y in old:
            if learner.running_task not in (None, task):
                learner.end_task()
            learner.observe(x, y, task)
        learner.end_task()
        learners[row] = learner
    return learners, made


def parser_of(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="permuted_mnist")
    parser.add_argument("--replay", type=int, default=256)
    parser.add_argument("--without", default="", help="rows to leave out, with commas between")
    parser.add_argument("--old-tasks", type=int, default=9)
    parser.add_argument("--warm-steps", type=int, default=5, help="batches of each old task")
    return parser


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    learners, made = warm_learners(arguments, arguments.replay)
    reference = RECIPES[arguments.recipe][2]

    ratios: dict[str, list[float]] = {row: [] for row in learners}
    for _ in range(arguments.rounds):
        batches = [made.batch(arguments.old_tasks) for _ in range(arguments.steps)]
        seconds = {}
        for row, learner in learners.items():
            started = time.perf_counter()
            for x, y in batches:
                learner.observe(x, y, arguments.old_tasks)
            seconds[row] = time.perf_counter() - started
        for row, taken in seconds.items():
            ratios[row].append(taken / seconds[reference])
    print(f"`{arguments.recipe}`, {BATCH} new samples, {arguments.replay} replayed, {arguments.old_tasks} old tasks:\n")
    lines = [[row, f"{statistics.median(found):.2f}"] for row, found in ratios.items()]
    print(markdown((["row", f"step, of {reference}'s"], lines)))


if __name__ == "__main__":
    main()
