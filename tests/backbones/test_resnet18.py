import pytest
import torch

from holdfast.backbones.resnet18 import Resnet18
from holdfast.core.model import HeadKind, Model


@pytest.mark.parametrize(
    ("layout", "head", "n_classes", "n_parameters"),
    [
        ("agem", "cosine", 200, 11_277_120),
        ("standard", "cosine", 200, 11_277_120 + 1_792),
        ("standard", "linear", 1000, 11_689_512),  # as published for ImageNet
    ],
)
def test_the_number_of_parameters_is_the_known_one(layout: str, head: HeadKind, n_classes: int, n_parameters: int):
    backbone = Resnet18((3, 224, 224), layout=layout)
    model = Model(backbone, n_features=512, n_classes=n_classes, setting="task", head=head)
    assert sum(p.numel() for p in model.parameters()) == n_parameters


@pytest.mark.parametrize(("layout", "size"), [("standard", 7), ("agem", 14)])
def test_the_last_stage_of_a_224_photograph_sees_a_picture_of_this_size(layout: str, size: int):
    with torch.device("meta"):
        backbone = Resnet18((3, 224, 224), layout=layout)
        stem = backbone.pool(backbone.norm(backbone.conv(torch.rand(1, 3, 224, 224))))
        assert backbone.stages(stem).shape == (1, 512, size, size)


@pytest.mark.parametrize("layout", ["standard", "agem"])
def test_one_small_image_can_be_learned(layout: str):
    backbone = Resnet18((3, 16, 16), layout=layout)
    features = backbone.train()(torch.rand(1, 3, 16, 16))
    assert features.shape == (1, backbone.n_features) == (1, 512)
    assert features.isfinite().all()


def test_samples_that_are_no_images_are_refused():
    with pytest.raises(ValueError, match=r"'resnet18' takes images .*not samples of shape \(784,\)"):
        Resnet18((784,))
