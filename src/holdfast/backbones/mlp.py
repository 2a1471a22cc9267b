from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from holdfast.backbones._base import Backbone, Initialisation

MAX_LAYERS, MAX_UNITS = 256, 2**20  # more are more likely a mistake
Units = Annotated[int, Field(ge=1, le=MAX_UNITS)]


class Mlp(Backbone):
    """Fully connected layers with ReLU; by default the paper's 256-256 for Permuted MNIST."""

    mixes_samples = False

    def __init__(
        self,
        input_shape: tuple[int, ...],
        hidden: Annotated[Sequence[Units], Field(min_length=1, max_length=MAX_LAYERS)] = (256, 256),
        initialisation: Initialisation = "torch",
    ) -> None:
        super().__init__()
        widths = [math.prod(input_shape), *hidden]
        self.layers = nn.ModuleList(nn.Linear(n_in, n_out) for n_in, n_out in pairwise(widths))
        self.n_features = widths[-1]
        self.initialise(initialisation)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim > 2:
            x = x.flatten(1)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x
