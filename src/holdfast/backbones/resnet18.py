from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.backbones._base import BatchNorm2d, ImageBackbone, Initialisation, Precision, residual_stages


class Resnet18(ImageBackbone):
    """The standard ResNet-18 for photographs (He et al., CVPR 2016), without its classifier.

    Args:
        layout: `standard` has max-pooling after the stem and batch normalisation on the shortcuts, as the
            common ImageNet weights do; `agem` has neither, as the protocol's predecessors.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        layout: Literal["standard", "agem"] = "standard",
        initialisation: Initialisation = "torch",
        precision: Precision = "float32",
    ) -> None:
        super().__init__(input_shape, "resnet18", precision)
        standard = layout == "standard"
        eps = 1e-5 if standard else 1e-3
        self.conv = nn.Conv2d(input_shape[0], 64, 7, stride=2, padding=3, bias=False)
        self.norm = BatchNorm2d(64, eps=eps)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if standard else nn.Identity()
        self.stages = residual_stages(64, eps=eps, shortcut_norm=standard)
        self.n_features = 512
        self.initialise(initialisation)
        self.lay_channels_last()

    def maps(self, x: Tensor) -> Tensor:
        maps: Tensor = self.stages(self.pool(F.relu(self.norm(self.conv(x)))))
        return maps
