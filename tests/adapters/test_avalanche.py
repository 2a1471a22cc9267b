"""COS and DRR in Avalanche, against the real package.

`python benchmarks/avalanche.py` makes an environment for it and runs these tests there.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("avalanche", reason="Avalanche needs torchvision, which goes with other builds of torch")

from avalanche.benchmarks.scenarios.online import split_online_stream
from avalanche.benchmarks.scenarios.supervised import class_incremental_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from avalanche.training.supervised import Naive

from holdfast.adapters.avalanche import TASK_LABEL, CentroidBuffer, DriftReducingPlugin
from holdfast.core.batch import FEATURE, Batch
from holdfast.losses.contrastive_margin import paired_margin_loss
from holdfast.memory.selection.centroid import Centroid

pytestmark = pytest.mark.filterwarnings("ignore")  # of what Avalanche warns about itself

N_CLASSES, N_FEATURES = 6, 8


class Points(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Separate clouds of points, one a class."""

    def __init__(self, n: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(N_CLASSES, (n,), generator=generator).tolist()
        self.x = torch.randn(n, N_FEATURES, generator=generator)
        self.x[torch.arange(n), torch.tensor(self.targets)] += 6

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.x[i], self.targets[i]


def benchmark(n: int = 600) -> Any:
    data = {"train": as_classification_dataset(Points(n, 0)), "test": as_classification_dataset(Points(120, 1))}
    return class_incremental_benchmark(data, num_experiences=3, seed=0)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(N_FEATURES, 16), nn.ReLU(), nn.Linear(16, N_CLASSES))


def options(model: nn.Module, *plugins: Any) -> dict[str, Any]:
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.2),
        "criterion": nn.CrossEntropyLoss(),
        "train_mb_size": 10,
        "eval_mb_size": 64,
        "plugins": list(plugins),
        "evaluator": EvaluationPlugin(accuracy_metrics(stream=True)),
    }


def accuracy(strategy: Any, test_stream: Any) -> float:
    (value,) = [v for name, v in strategy.eval(test_stream).items() if "Top1_Acc_Stream" in name]
    return float(value)


def trained(plugins: list[Any], *, online: bool = False) -> tuple[Any, float]:
    made, model = benchmark(), network()
    strategy = Naive(train_epochs=1, **options(model, *plugins))
    stream = made.train_stream
    if online:
        stream = split_online_stream(stream, experience_size=10, access_task_boundaries=True)
    for experience in stream:
        strategy.train(experience)
    return strategy, accuracy(strategy, made.test_stream)


def stored(buffer: CentroidBuffer) -> tuple[Tensor, Tensor]:
    rows = [buffer.buffer[i] for i in range(len(buffer.buffer))]
    return torch.stack([row[0] for row in rows]), torch.tensor([int(row[1]) for row in rows])


def test_the_storage_policy_keeps_what_the_selection_chooses_equally_of_each_class() -> None:
    buffer = CentroidBuffer(30, "1", epsilon=2.0, fill_first=True)
    trained([ReplayPlugin(mem_size=30, storage_policy=buffer)])
    x, y = stored(buffer)
    assert len(x) == 30
    assert torch.bincount(y, minlength=N_CLASSES).tolist() == [5] * N_CLASSES
    assert torch.equal(y, buffer.memory.y)
    true = torch.zeros(30, N_FEATURES)
    true[torch.arange(30), y] = 6
    assert ((x - true).square().sum(dim=1).sqrt() < 6).all()  # a sample stands with its own class


def test_replay_with_the_storage_policy_forgets_less_than_none() -> None:
    _, without = trained([])
    _, kept = trained([ReplayPlugin(mem_size=60, storage_policy=CentroidBuffer(60, "1", epsilon=2.0, fill_first=True))])
    assert without < 0.8
    assert kept > without + 0.15


def test_the_samples_that_stay_are_those_of_the_selection_alone() -> None:
    made, model = benchmark(), network().eval()
    strategy = Naive(train_epochs=1, **options(model))
    buffer = CentroidBuffer(20, "1", seed=3, epsilon=2.0)
    alone, memory = Centroid(epsilon=2.0), CentroidBuffer(20, "1", seed=3).memory
    for experience in made.train_stream:
        buffer.post_adapt(strategy, experience)
        rows = [experience.dataset[i] for i in range(len(experience.dataset))]
        x, y = torch.stack([row[0] for row in rows]), torch.tensor([int(row[1]) for row in rows])
        with torch.no_grad():
            features = model[:2](x)
        batch = alone.with_extras(Batch(x, y, torch.zeros_like(y), {FEATURE: features}), None)  # type: ignore[arg-type]
        memory.fit(batch)
        alone.update(memory, batch, None)  # type: ignore[arg-type]
    assert torch.equal(stored(buffer)[0], memory.x)


def test_a_smaller_size_keeps_the_nearest_of_each_class_and_learning_goes_on() -> None:
    buffer = CentroidBuffer(30, "1", epsilon=2.0, fill_first=True)
    strategy, _ = trained([ReplayPlugin(mem_size=30, storage_policy=buffer)])
    buffer.resize(strategy, 12)
    assert torch.bincount(stored(buffer)[1]).tolist() == [2] * N_CLASSES
    assert torch.equal(stored(buffer)[1], buffer.memory.y)
    buffer.post_adapt(strategy, benchmark().train_stream[0])
    assert len(buffer.buffer) <= 12
    assert torch.equal(stored(buffer)[1], buffer.memory.y)


@pytest.mark.parametrize("online", [False, True])
def test_the_plug_in_forgets_less_than_none(online: bool) -> None:
    plugin = DriftReducingPlugin(60, "1", epsilon=2.0, fill_first=True)
    _, without = trained([], online=online)
    _, kept = trained([plugin], online=online)
    assert kept > without + 0.1
    assert len(plugin.memory) <= 60
    assert plugin.memory.task.unique().tolist() == [0, 1, 2]  # an online part belongs to its experience
    assert plugin.memory.extra(TASK_LABEL).unique().tolist() == [0]


class Recorded(DriftReducingPlugin):
    """The plug-in, with the losses before and after it, and what they are worked out from."""

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        features, before = self._features, strategy.loss.item()
        state = self.memory.rng.get_state()
        super().before_backward(strategy, **kwargs)
        self.seen = (strategy.model, features.detach(), strategy.mb_y.clone(), before, strategy.loss.item(), state)


def test_the_loss_is_that_of_the_paper_written_out() -> None:
    plugin = Recorded(40, "1", epsilon=2.0, fill_first=True, contrast=0.5, distillation=2.0)
    made, model = benchmark(), network()
    strategy = Naive(train_epochs=1, **options(model, plugin))
    for experience in made.train_stream[:2]:
        strategy.train(experience)
    strategy.plugins.append(Stop())
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    memory = plugin.memory[:]
    with pytest.raises(Stopped):
        strategy.train(made.train_stream[2])
    _, new, y, before, after, rng = plugin.seen
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    plugin.memory.rng.set_state(rng)
    old = plugin.memory.draw(10)
    assert len(memory) == 40
    features = model[:2](old.x)
    expected = before + nn.functional.cross_entropy(model(old.x), old.y)
    expected = expected + 2.0 * (features - old.extra[FEATURE]).square().mean()
    joined, labels = torch.cat([features, new]), torch.cat([old.y, y])
    task, is_old = torch.cat([old.task, torch.full_like(y, 2)]), torch.arange(20) < 10
    for anchor in (is_old, ~is_old):
        margins = {"scale": 10.0, "class_margin": 0.01, "task_margin": 0.1}
        expected = expected + 0.5 * paired_margin_loss(joined, labels, task, is_anchor=anchor, **margins)
    assert after == pytest.approx(expected.item(), rel=1e-5)


class Stopped(Exception):
    """Raised to end training after one loss."""


class Stop:
    """Plug-in that stops after the first loss."""

    supports_distributed = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def after_backward(self, *_: Any, **__: Any) -> None:
        raise Stopped


def test_the_model_is_left_as_it_was() -> None:
    model = network()
    strategy = Naive(train_epochs=1, **options(model, DriftReducingPlugin(20, "1")))
    strategy.train(benchmark().train_stream[0])
    assert not model[1]._forward_hooks
    assert model.training
