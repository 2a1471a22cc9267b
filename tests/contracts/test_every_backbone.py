"""What every network has to hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast import Learner, load_learner
from holdfast.build import names

from ..backbones.test_efficientnet_lite0 import needs_weights

SHAPE = (3, 32, 32)
PRETRAINED = pytest.param({"name": "efficientnet_lite0", "pretrained": True}, marks=needs_weights, id="pretrained")


@pytest.mark.parametrize("backbone", [*names("backbones"), PRETRAINED])
def test_a_learner_saved_half_way_goes_on_to_the_same_bits(backbone: str | dict[str, Any], tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(0, 256, (4, 6, *SHAPE), dtype=torch.uint8, generator=generator)
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    learner = Learner("drr", backbone=backbone, memory=12, replay_size=4, lr=0.01, average=0.9)
    for step in (0, 1):
        learner.observe(x[step], y)
    learner.save(tmp_path / "learner")
    restored = load_learner(tmp_path / "learner")
    for step in (2, 3):
        assert restored.observe(x[step], y) == learner.observe(x[step], y)
    assert torch.equal(restored.scores(x[0]), learner.scores(x[0]))
