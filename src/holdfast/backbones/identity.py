from __future__ import annotations

import math

from torch import Tensor

from holdfast.backbones._base import Backbone


class Identity(Backbone):
    """No network: a sample is its own features, flattened. For features that another network made."""

    pretraining = "none here: inputs are taken as they come"
    mixes_samples = False

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.n_features = math.prod(input_shape)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)
