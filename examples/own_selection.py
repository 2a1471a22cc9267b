"""A selection in one file: keep the samples that the model is least sure of, about as many a class."""

from dataclasses import dataclass

import torch

from holdfast import Batch, Learner, Memory, Model, Selection, predicting


@dataclass(eq=False)
class LeastSure(Selection):
    """Keep samples with a low score of their class; a full memory replaces the surest sample of the largest class."""

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        for sample in batch.samples():
            if len(memory) < memory.capacity:
                memory.add(sample)
                continue
            largest = int(torch.bincount(memory.y).argmax())
            slots = (memory.y == largest).nonzero().flatten()
            with torch.no_grad(), predicting(model):
                scores = model(memory.x[slots])[:, largest]
            memory.write([int(slots[scores.argmax()])], sample)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    learner = Learner("er", memory=40, selection="own_selection:LeastSure", lr=0.1)
    for step in range(120):
        y = torch.full((10,), step // 30)
        x = torch.randn(10, 20, generator=generator) + 3 * torch.nn.functional.one_hot(y, 20)
        learner.observe(x, y)
    memory = learner.memory
    assert memory is not None
    print("samples a class in memory:", torch.bincount(memory.y).tolist())


if __name__ == "__main__":
    main()
