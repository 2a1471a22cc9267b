"""Learn a stream whose classes arrive over time, save the learner, and continue."""

import tempfile
from pathlib import Path

import torch

from holdfast import Learner, load_learner


def batches(n: int = 300) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of ten samples; every hundred batches bring two new classes."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for step in range(n):
        y = torch.randint(0, 2, (10,), generator=generator) + 2 * (step // 100)
        x = torch.randn(10, 20, generator=generator) + 3 * torch.nn.functional.one_hot(y, 20)
        made.append((x, y))
    return made


def main() -> None:
    stream = batches()
    learner = Learner("er", memory="1 MB", lr=0.1)
    for x, y in stream[:250]:
        learner.observe(x, y)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.holdfast"
        learner.save(path)
        learner = load_learner(path)
    for x, y in stream[250:]:
        learner.observe(x, y)

    for first in (0, 100, 200):
        x = torch.cat([x for x, _ in stream[first : first + 10]])
        y = torch.cat([y for _, y in stream[first : first + 10]])
        right = (learner.predict(x) == y).float().mean().item()
        print(f"classes {sorted(set(y.tolist()))}: {100 * right:.0f} % right")


if __name__ == "__main__":
    main()
