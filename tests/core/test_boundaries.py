"""Boundaries of tasks that are found in the stream."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from holdfast.core.boundaries import Boundaries
from holdfast.core.detectors import DetectorName
from tests.support.same import assert_same

DETECTORS = get_args(DetectorName)


def found_in(boundaries: Boundaries, losses: list[float], features: torch.Tensor) -> list[tuple[int, str]]:
    return [
        (i, signal)
        for i, (loss, part) in enumerate(zip(losses, features, strict=True))
        if (signal := boundaries.update(loss, part))
    ]


def noisy(levels: list[float], n: int, seed: int = 0) -> list[float]:
    rng = torch.Generator().manual_seed(seed)
    return [level + 0.1 * float(torch.rand((), generator=rng)) for level in levels for _ in range(n)]


def usual_features(n: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(n, 10, 3, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("detector", DETECTORS)
def test_a_rise_of_the_loss_is_found_once(detector: DetectorName) -> None:
    found = found_in(Boundaries(detector), noisy([0.2, 3.0], 400), usual_features(800))
    assert [signal for _, signal in found] == ["loss"]
    assert 400 <= found[0][0] < 560


@pytest.mark.parametrize("detector", ["adwin", "page_hinkley"])
def test_a_fall_of_the_loss_is_no_boundary(detector: DetectorName) -> None:
    assert found_in(Boundaries(detector), noisy([3.0, 0.2], 400), usual_features(800)) == []


def test_features_that_move_are_a_boundary() -> None:
    features = usual_features(800)
    features[400:] += 4.0
    found = found_in(Boundaries("adwin"), noisy([0.2, 0.2], 400), features)
    assert [signal for _, signal in found][:1] == ["features"]
    assert 400 <= found[0][0] < 560


def test_it_goes_on_to_the_same_boundaries_after_a_save_and_refuses_a_damaged_one() -> None:
    losses, features = noisy([0.2, 3.0, 6.0], 200), usual_features(600)
    whole, first, second = (Boundaries("adwin") for _ in range(3))
    expected = found_in(whole, losses, features)
    before = found_in(first, losses[:250], features[:250])
    second.load_state_dict(first.state_dict())
    after = found_in(second, losses[250:], features[250:])
    assert before + [(i + 250, signal) for i, signal in after] == expected
    assert expected
    assert_same(second.state_dict(), whole.state_dict())
    for damage in ({"found": [[1, "noise"]]}, {"usual": torch.tensor([float("nan")])}, {"detector": "ddm"}):
        with pytest.raises(ValueError, match="saved"):
            Boundaries("adwin").load_state_dict(whole.state_dict() | damage)


def test_a_loss_that_is_no_number_counts_as_the_worst() -> None:
    boundaries = Boundaries("adwin")
    losses = [*noisy([0.1], 200), *[float("inf")] * 100]
    assert [signal for _, signal in found_in(boundaries, losses, usual_features(300))] == ["loss"]
