import pytest
import torch

from holdfast.core.drift import apart, moved, spread


def test_distances_of_an_example_by_hand():
    then = torch.tensor([[0.0, 0.0], [2.0, 0.0]])  # one away from their mean each
    assert spread(then) == 1
    assert moved(then + torch.tensor([0.0, 3.0]), then) == pytest.approx(3)
    assert apart(then, 3 * then) == pytest.approx(2 / 2)  # means at 1 and 3, spreads 1 and 3


def test_what_stays_has_not_moved():
    features = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert moved(features, features) == 0
    assert apart(features, features) == 0


def test_the_scale_of_features_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(9, 3, generator=generator), torch.randn(9, 3, generator=generator)
    assert moved(7 * a, 7 * b) == pytest.approx(moved(a, b), rel=1e-5)
    assert apart(7 * a, 7 * b) == pytest.approx(apart(a, b), rel=1e-5)
