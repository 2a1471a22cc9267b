"""Keep a memory of 40 KB while 50 classes arrive, and look at its content."""

from collections import Counter

import torch

from holdfast import Learner


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    learner = Learner({"name": "er", "replay_size": 20}, memory="40 KB", selection="ring", n_classes=50, lr=0.1)
    for step in range(250):
        y = torch.full((10,), step // 5)  # a new class every five batches
        x = torch.randint(0, 256, (10, 64), generator=generator, dtype=torch.uint8)  # bytes stay bytes in memory
        learner.observe(x, y)

    memory = learner.memory
    assert memory is not None
    n_of_class = Counter(memory.y.tolist())
    print(f"{len(memory)} samples of {len(n_of_class)} classes in memory")
    print(f"{min(n_of_class.values())} to {max(n_of_class.values())} samples a class")


if __name__ == "__main__":
    main()
