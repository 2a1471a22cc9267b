"""What every network here has, and a batch normalisation that bears a single value."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Backbone(nn.Module):
    """Inputs (n, *input_shape) to features (n, n_features)."""

    n_features: int


class ImageBackbone(Backbone):
    """A backbone of convolutions, whose numbers lie channels last: on a CPU they run a third faster so."""

    def __init__(self, input_shape: tuple[int, ...], name: str) -> None:
        super().__init__()
        if len(input_shape) != 3:
            raise ValueError(
                f"backbone '{name}' takes images (channels, height, width), not samples of shape {input_shape}: "
                "use backbone 'mlp', or reshape the input"
            )

    def lay_channels_last(self) -> None:
        """To be called once all layers are there: the layout of the weights decides for what flows through."""
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
