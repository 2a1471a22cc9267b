"""No network."""

from __future__ import annotations

import torch

from holdfast import Learner


def test_features_are_the_inputs_flattened_and_prepared() -> None:
    learner = Learner("er", backbone="identity", input_shape=(2, 3), scale=2.0, mean=1.0)
    x = torch.arange(12.0).reshape(2, 2, 3)
    assert torch.equal(learner.features(x), 2 * x.flatten(1) - 1)
    assert not list(learner.method.model.backbone.parameters())


def test_bytes_come_as_numbers_from_0_to_1() -> None:
    learner = Learner("ncm", backbone="identity", input_shape=(2,))
    x = torch.tensor([[0, 255]], dtype=torch.uint8)
    assert torch.equal(learner.features(x), torch.tensor([[0.0, 1.0]]))
