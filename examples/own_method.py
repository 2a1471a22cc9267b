"""A method in one file, compared with `er` on scanned digits over three seeds.

On the command line: holdfast check own_method:WeightedReplay, and
holdfast compare permuted_digits --methods er,own_method:WeightedReplay
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from holdfast import Batch, ReplayMethod, ResultStore, load_recipe, run


@dataclass(kw_only=True, eq=False)
class WeightedReplay(ReplayMethod):
    """Experience replay whose replayed samples count `old_weight` times."""

    old_weight: float = 2.0

    def observe(self, batch: Batch) -> float:
        loss = self.model.loss(batch)
        old = self.recall(batch)
        if len(old):
            loss = loss + self.old_weight * self.model.loss(old)
        value = self.step(loss)
        self.remember(batch)
        return value


def main() -> None:
    recipe = load_recipe("permuted_digits")
    with tempfile.TemporaryDirectory() as folder:
        store = ResultStore(Path(folder))
        for method in ("er", "own_method:WeightedReplay"):
            for seed in (1, 2, 3):
                experiment = recipe.experiment(
                    method, seed=seed, changes={"stream.n_tasks": 3, "stream.samples_per_task": 500}
                )
                metrics = run(experiment, store).metrics
                accuracy, forgetting = 100 * metrics["average_accuracy"], metrics["forgetting"]
                print(f"{experiment.row:15} seed {seed}: A_T {accuracy:.1f} %, F_T {forgetting:.3f}")


if __name__ == "__main__":
    main()
