from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from holdfast.backbones._base import BatchNorm2d, ImageBackbone, Initialisation, Precision, residual_stages

MAX_WIDTH = 4096  # channels; more are more likely a mistake
EPS = 1e-3  # of batch normalisation, as in the protocol that A-GEM began


class ReducedResnet18(ImageBackbone):
    """ResNet-18 with a third of the channels, for 32x32 images.

    Lopez-Paz and Ranzato, "Gradient Episodic Memory for Continual Learning", NeurIPS 2017.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        width: Annotated[int, Field(ge=1, le=MAX_WIDTH)] = 20,
        initialisation: Initialisation = "torch",
        precision: Precision = "float32",
    ) -> None:
        super().__init__(input_shape, "reduced_resnet18", precision)
        self.conv = nn.Conv2d(input_shape[0], width, 3, padding=1, bias=False)
        self.norm = BatchNorm2d(width, eps=EPS)
        self.stages = residual_stages(width, eps=EPS)
        self.n_features = 8 * width
        self.initialise(initialisation)
        self.lay_channels_last()

    def maps(self, x: Tensor) -> Tensor:
        maps: Tensor = self.stages(F.relu(self.norm(self.conv(x))))
        return maps
