from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from holdfast.backbones._base import Backbone


class Mlp(Backbone):
    """Fully connected layers with ReLU; by default the paper's 256-256 for Permuted MNIST."""

    def __init__(self, input_shape: tuple[int, ...], hidden: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        if not hidden or min(hidden) < 1:
            raise ValueError(f"mlp needs one or more hidden layers of one or more units, not {list(hidden)}")
        layers: list[nn.Module] = [nn.Flatten()]
        n_in = math.prod(input_shape)
        for width in hidden:
            layers += [nn.Linear(n_in, width), nn.ReLU()]
            n_in = width
        self.layers = nn.Sequential(*layers)
        self.n_features = n_in

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features
