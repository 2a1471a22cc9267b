"""What every method does with a backbone that keeps its weights, and with none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from holdfast import Learner
from holdfast.parts import names
from tests.support.toy import N_FEATURES, toy_batches

# Batch normalisation would change without a gradient.
RESNET = {"name": "reduced_resnet18", "width": 8, "frozen": True}
FEW_STEPS = {"mer": {"replay_size": 2}}


def learner_of(method: str, **settings: Any) -> Learner:
    options = {"name": method, **FEW_STEPS.get(method, {})}
    return Learner(options, setting="class", memory=12, lr=0.05, **settings)


@pytest.mark.parametrize("method", names("methods"))
def test_a_frozen_backbone_keeps_its_weights_and_statistics_to_the_bit(method: str) -> None:
    learner = learner_of(method, backbone=RESNET, n_classes=4, input_shape=(3, 16, 16))
    before = {name: tensor.clone() for name, tensor in learner.method.model.backbone.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    for step in range(4):
        x = torch.randint(0, 256, (6, 3, 16, 16), dtype=torch.uint8, generator=generator)
        learner.observe(x, torch.arange(6) % 2 + 2 * (step // 2), step // 2)
    learner.end_task()
    after = learner.method.model.backbone.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("method", names("methods"))
def test_it_learns_on_the_features_of_a_frozen_backbone(method: str) -> None:
    learner = learner_of(method, backbone={"name": "mlp", "hidden": [64], "frozen": True})
    check_it_learns(learner)


@pytest.mark.parametrize("method", names("methods"))
def test_it_learns_without_a_backbone(method: str) -> None:
    learner = learner_of(method, backbone="identity")
    assert not list(learner_parameters(learner))
    check_it_learns(learner)


def learner_parameters(learner: Learner) -> list[torch.Tensor]:
    return [] if learner._method is None else list(learner.method.model.backbone.parameters())


def check_it_learns(learner: Learner) -> None:
    batches = toy_batches("class")
    for x, y, task in batches[:12]:  # the first task
        learner.observe(x, y, task)
    x, y = (torch.cat([batch[i] for batch in batches[:12]]) for i in (0, 1))
    assert x.shape[1:] == (N_FEATURES,)
    assert (learner.predict(x) == y).double().mean() > 0.9


def test_a_module_of_ones_own_is_frozen_by_an_attribute() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(N_FEATURES, 4), torch.nn.BatchNorm1d(4))
    module.frozen = True
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    learner = Learner("er", backbone=module)
    for x, y, _ in toy_batches("free")[:3]:
        learner.observe(x, y)
    assert all(torch.equal(module.state_dict()[name], tensor) for name, tensor in before.items())
