import pytest
import torch
from torch import nn

from holdfast.backbones._base import BatchNorm2d
from holdfast.backbones.reduced_resnet18 import ReducedResnet18
from holdfast.core.model import Model


def test_the_paper_model_for_split_cifar100_has_1_109_140_parameters():
    model = Model(ReducedResnet18((3, 32, 32)), n_features=160, n_classes=100, setting="task", head="cosine")
    assert sum(p.numel() for p in model.parameters()) == 1_109_140


def test_the_channels_of_the_stages_are_20_20_40_80_160():
    backbone = ReducedResnet18((3, 32, 32))
    assert backbone.conv.out_channels == 20
    assert [block.conv2.out_channels for block in backbone.stages] == [20, 20, 40, 40, 80, 80, 160, 160]


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 9, 17)])
def test_it_makes_160_features_of_an_image_of_any_size(shape: tuple[int, ...]):
    backbone = ReducedResnet18(shape)
    assert backbone(torch.rand(2, *shape)).shape == (2, backbone.n_features) == (2, 160)


def test_one_small_image_can_be_learned():
    backbone = ReducedResnet18((3, 8, 8), width=4)  # the last stage sees one pixel
    features = backbone.train()(torch.rand(1, 3, 8, 8))
    features.sum().backward()
    assert features.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in backbone.parameters())


@pytest.mark.parametrize("shape", [(784,), (32, 32), (1, 3, 32, 32)])
def test_samples_that_are_no_images_are_refused(shape: tuple[int, ...]):
    with pytest.raises(
        ValueError, match=r"'reduced_resnet18' takes images .*not samples of shape .*use backbone 'mlp'"
    ):
        ReducedResnet18(shape)


def test_one_value_a_channel_is_normalised_by_the_running_averages():
    norm = BatchNorm2d(2, eps=0.0)
    norm.running_mean.copy_(torch.tensor([1.0, 2.0]))
    norm.running_var.copy_(torch.tensor([4.0, 1.0]))
    assert norm.train()(torch.tensor([5.0, 5.0]).reshape(1, 2, 1, 1)).flatten().tolist() == [2.0, 3.0]
    assert norm.running_mean.tolist() == [1.0, 2.0]


def test_more_values_are_normalised_as_torch_does():
    ours, torchs = BatchNorm2d(2), nn.BatchNorm2d(2)
    x = torch.rand(1, 2, 1, 2)
    assert torch.equal(ours(x), torchs(x))
    assert torch.equal(ours.running_var, torchs.running_var)
