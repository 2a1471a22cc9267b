"""Base class of every backbone, and a batch normalisation that accepts a single value."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Initialisation = Literal["torch", "agem"]
Precision = Literal["float32", "bfloat16"]


class Backbone(nn.Module):
    """Inputs (n, *input_shape) to features (n, n_features).

    Attributes:
        pixels: scale and mean that raw pixels p are wanted in, as p * scale - mean; None: as the stream says.
        pretraining: what its weights have learned before, in words.
        frozen: whether its weights and batch statistics stay as they are; the option `frozen` of every backbone.
        mixes_samples: False if no sample changes the features of those beside it, as batch statistics do.

    Example:
        >>> class Squares(Backbone):
        ...     def __init__(self, input_shape):
        ...         super().__init__()
        ...         self.n_features = input_shape[0]
        ...
        ...     def forward(self, x):
        ...         return x * x
        >>> Squares((2,))(torch.tensor([[1.0, -3.0]]))
        tensor([[1., 9.]])
    """

    n_features: int
    pixels: tuple[float, float] | None = None
    pretraining: str = "none"
    frozen: bool = False
    mixes_samples: bool = True

    def initialise(self, kind: Initialisation) -> None:
        """Initialise all layers; call it once they are there. `torch` leaves them as they made themselves.

        `agem` is what the protocol's predecessors do. Convolutions of k x k: uniform in ±1/√(k·n_in), √k times torch's;
        batch normalisation undoes that size, but the step, relative to the weights, is k times smaller. Linear layers:
        normal of deviation 0.1, cut at two deviations, with biases of 0.1.
        """
        if kind == "torch":
            return
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                bound = (layer.kernel_size[0] * layer.in_channels) ** -0.5
                nn.init.uniform_(layer.weight, -bound, bound)
            elif isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.1, a=-0.2, b=0.2)
                nn.init.constant_(layer.bias, 0.1)


class ImageBackbone(Backbone):
    """A backbone of convolutions, whose numbers lie channels last: on a CPU they run a third faster so.

    Args:
        precision: of what flows through the convolutions. `bfloat16` halves its bytes and is faster on processors that
            can calculate in it; weights, batch statistics, gradients and features stay float32.
    """

    def __init__(self, input_shape: tuple[int, ...], name: str, precision: Precision) -> None:
        super().__init__()
        self.precision = precision
        if len(input_shape) != 3:
            raise ValueError(
                f"backbone '{name}' takes images (channels, height, width), not samples of shape {input_shape}: "
                "use backbone 'mlp', or reshape the input"
            )

    @abstractmethod
    def maps(self, x: Tensor) -> Tensor:
        """Return (n, n_features, height, width), the maps of the last convolution."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16) if self.precision == "bfloat16" else nullcontext():
            maps = self.maps(x)
        return maps.to(x.dtype).mean(dim=(2, 3))

    def lay_channels_last(self) -> None:
        """Lay all weights channels last; call it once all layers are there. Their layout decides for the activations.

        Not with fewer than 8 channels: torch 2.13 writes beyond its memory on a CPU in the backward pass of a 1x1
        convolution with stride 2 that lies so.
        """
        if any(isinstance(layer, nn.Conv2d) and layer.out_channels < 8 for layer in self.modules()):
            return
        for parameter in self.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation that uses the running averages when a batch has one value a channel.

    One value has no variance: torch refuses it, which would end a stream that brings one small image.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.numel() == x.shape[1]:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., CVPR 2016)."""

    def __init__(self, n_in: int, n_out: int, *, stride: int, eps: float, shortcut_norm: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        self.norm1 = BatchNorm2d(n_out, eps=eps)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.norm2 = BatchNorm2d(n_out, eps=eps)
        self.shortcut = nn.Sequential()
        if stride != 1 or n_in != n_out:
            self.shortcut.append(nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False))
            if shortcut_norm:
                self.shortcut.append(BatchNorm2d(n_out, eps=eps))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


def residual_stages(width: int, *, eps: float, shortcut_norm: bool = True) -> nn.Sequential:
    """Four stages of two blocks each; every stage but the first doubles the channels and halves the picture."""
    blocks: list[nn.Module] = []
    n_in = width
    for n_out, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        blocks += [
            BasicBlock(n_in, n_out, stride=stride, eps=eps, shortcut_norm=shortcut_norm),
            BasicBlock(n_out, n_out, stride=1, eps=eps, shortcut_norm=shortcut_norm),
        ]
        n_in = n_out
    return nn.Sequential(*blocks)
