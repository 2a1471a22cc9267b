from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from holdfast.backbones._base import Backbone, Initialisation

MAX_LAYERS, MAX_UNITS = 256, 2**20  # more are more likely a mistake


class Mlp(Backbone):
    """Fully connected layers with ReLU; by default the paper's 256-256 for Permuted MNIST."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        hidden: Sequence[int] = (256, 256),
        initialisation: Initialisation = "torch",
    ) -> None:
        super().__init__()
        if not 1 <= len(hidden) <= MAX_LAYERS or not 1 <= min(hidden) <= max(hidden) <= MAX_UNITS:
            raise ValueError(
                f"mlp needs 1 to {MAX_LAYERS} hidden layers of 1 to {MAX_UNITS:,} units, not {_short(hidden)}"
            )
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


def _short(hidden: Sequence[int]) -> str:
    """As many of the numbers as fit into a sentence."""
    shown = ", ".join(map(str, hidden[:10]))
    return f"[{shown}]" if len(hidden) <= 10 else f"[{shown}, …], which are {len(hidden):,}"
