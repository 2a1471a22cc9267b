import subprocess
import sys

import pytest
import torch
from torch import nn

from holdfast.backbones.mlp import Mlp
from holdfast.backbones.reduced_resnet18 import ReducedResnet18
from holdfast.backbones.resnet18 import Resnet18


@pytest.mark.parametrize("backbone", [ReducedResnet18, Resnet18])
def test_convolutions_of_the_predecessors_reach_one_over_the_root_of_kernel_times_channels(
    backbone: type[ReducedResnet18 | Resnet18],
):
    torch.manual_seed(0)
    for layer in backbone((3, 32, 32), initialisation="agem").modules():
        if isinstance(layer, nn.Conv2d):
            bound = (layer.kernel_size[0] * layer.in_channels) ** -0.5
            largest = layer.weight.abs().max().item()
            assert 0.9 * bound < largest <= bound
            assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_linear_layers_of_the_predecessors_are_cut_normals_with_small_biases():
    torch.manual_seed(0)
    for layer in Mlp((784,), initialisation="agem").layers:
        assert layer.weight.abs().max().item() <= 0.2
        assert layer.weight.std().item() == pytest.approx(0.1 * 0.8796, rel=0.01)  # of a normal cut at two deviations
        assert torch.equal(layer.bias, torch.full_like(layer.bias, 0.1))


def test_few_channels_do_not_damage_memory():
    # In a process of its own, which torch ends if they do.
    code = """
import torch
from holdfast.backbones.reduced_resnet18 import ReducedResnet18
for width in (2, 3, 4, 5, 6, 7, 8):
    backbone = ReducedResnet18((3, 8, 8), width=width)
    for _ in range(10):
        backbone(torch.rand(4, 3, 8, 8)).sum().backward()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
