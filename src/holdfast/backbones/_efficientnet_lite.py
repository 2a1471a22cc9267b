"""EfficientNet-Lite in its sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.backbones._base import BatchNorm2d, ImageBackbone, Precision
from holdfast.backbones._published import PublishedWeights, check_colour

# expansion, channels, repeats, stride of the first, kernel
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


class EfficientnetLite(ImageBackbone):
    """EfficientNet-Lite: small networks for photographs (Tan and Le, ICML 2019, without squeeze and excitation).

    Attributes:
        width, depth: factors of the channels and of the blocks of a stage, against Lite0. The stem, the last layer and
            the number of blocks of the first and of the last stage do not grow.
        weights: the published weights for ImageNet.
    """

    width: float
    depth: float
    weights: PublishedWeights

    def __init__(
        self, input_shape: tuple[int, ...], pretrained: bool = False, precision: Precision = "float32"
    ) -> None:
        super().__init__(input_shape, self.weights.backbone, precision)
        stages = list(scaled(self.width, self.depth))
        self.stem = _ConvNorm(input_shape[0], 32, kernel=3, stride=2)
        self.blocks = nn.Sequential(*_blocks(stages))
        self.top = _ConvNorm(stages[-1][1], 1280, kernel=1)
        self.n_features = 1280
        if pretrained:
            check_colour(input_shape)
            if not self.stem.conv.weight.is_meta:  # there only shapes are asked for
                published = self.weights.read()
                self.load_state_dict({renamed(k): v for k, v in published.items() if not k.startswith("_fc.")})
            self.pixels = (1 / 128, 127 / 128)
            self.pretraining = "ImageNet, the published weights; the paper has a ResNet-18"
        self.lay_channels_last()

    def maps(self, x: Tensor) -> Tensor:
        return F.relu6(self.top(self.blocks(F.relu6(self.stem(x)))))


def scaled(width: float, depth: float) -> Iterator[tuple[int, int, int, int, int]]:
    """Scale the stages of Lite0; channels are rounded to a multiple of 8, to no less than nine tenths."""
    for i, (expansion, channels, repeats, stride, kernel) in enumerate(STAGES):
        wide = max(8, int(width * channels + 4) // 8 * 8)
        wide += 8 if wide < 0.9 * width * channels else 0
        deep = repeats if i in (0, len(STAGES) - 1) else math.ceil(depth * repeats)
        yield expansion, wide, deep, stride, kernel


class _ConvNorm(nn.Module):
    """A convolution, padded as TensorFlow does so that its stride alone shrinks the picture, and its normalisation."""

    def __init__(self, n_in: int, n_out: int, *, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, kernel, stride=stride, groups=groups, bias=False)
        self.norm = BatchNorm2d(n_out, eps=1e-3)
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        (left, right), (top, bottom) = (self._padding(size) for size in (x.shape[3], x.shape[2]))
        if right or bottom:
            x = F.pad(x, (left, right, top, bottom))
        out: Tensor = self.norm(self.conv(x))
        return out

    def _padding(self, size: int) -> tuple[int, int]:
        """Before and after; an odd one comes after."""
        total = max((-(-size // self.stride) - 1) * self.stride + self.kernel - size, 0)
        return total // 2, total - total // 2


class _Block(nn.Module):
    """Widen, look at each channel's neighbourhood, narrow; with a shortcut where the shapes agree."""

    def __init__(self, n_in: int, n_out: int, *, expansion: int, stride: int, kernel: int) -> None:
        super().__init__()
        wide = expansion * n_in
        self.expand = _ConvNorm(n_in, wide, kernel=1) if expansion > 1 else None
        self.depthwise = _ConvNorm(wide, wide, kernel=kernel, stride=stride, groups=wide)
        self.project = _ConvNorm(wide, n_out, kernel=1)
        self.has_shortcut = stride == 1 and n_in == n_out

    def forward(self, x: Tensor) -> Tensor:
        out = x if self.expand is None else F.relu6(self.expand(x))
        out = F.relu6(self.depthwise(out))
        narrow: Tensor = self.project(out)
        return narrow + x if self.has_shortcut else narrow


def _blocks(stages: Sequence[tuple[int, int, int, int, int]]) -> Iterator[_Block]:
    n_in = 32
    for expansion, n_out, n_repeats, first_stride, kernel in stages:
        for i in range(n_repeats):
            yield _Block(n_in, n_out, expansion=expansion, stride=first_stride if i == 0 else 1, kernel=kernel)
            n_in = n_out


def renamed(name: str) -> str:
    """Return the name here of a published array: `_blocks.3._bn1.weight` is `blocks.3.depthwise.norm.weight`."""
    *place, layer, kind = name.split(".")
    if place:
        parts = {
            **{"_expand_conv": "expand.conv", "_bn0": "expand.norm"},
            **{"_depthwise_conv": "depthwise.conv", "_bn1": "depthwise.norm"},
            **{"_project_conv": "project.conv", "_bn2": "project.norm"},
        }
        return f"blocks.{place[1]}.{parts[layer]}.{kind}"
    parts = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "top.conv", "_bn1": "top.norm"}
    return f"{parts[layer]}.{kind}"
