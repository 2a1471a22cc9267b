"""The distance beyond which a sample is unknown."""

from __future__ import annotations

import math

import pytest
import torch

from holdfast.core.novelty import KEPT, Novelty, nearest, spread_slots
from tests.support.same import assert_same


def blobs(n: int, seed: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    centres = torch.tensor([[0.0, 0.0], [8.0, 0.0]])
    return centres[torch.randint(2, (n,), generator=rng)] + torch.randn(n, 2, generator=rng)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3])
def test_false_alarms_come_at_the_stated_rate_and_a_far_class_is_unknown(rate: float) -> None:
    remembered, novelty = blobs(200, 0), Novelty(rate)
    for part in blobs(600, 1).split(10):
        novelty.update(part, remembered)
    alarms = novelty.is_unknown(blobs(4000, 2), remembered).double().mean().item()
    assert alarms == pytest.approx(rate, abs=3 * math.sqrt(rate * (1 - rate) / KEPT))
    assert novelty.is_unknown(torch.tensor([[4.0, 30.0], [100.0, 0.0]]), remembered).all()
    assert len(novelty.distances) == KEPT


def test_the_scale_of_features_makes_no_alarm() -> None:
    remembered, new = blobs(100, 0), blobs(50, 1)
    assert torch.equal(nearest(1024 * new, 1024 * remembered), nearest(new, remembered))


def test_as_long_as_few_samples_were_seen_nothing_is_unknown() -> None:
    remembered, novelty = blobs(100, 0), Novelty(0.05)
    novelty.update(blobs(18, 1), remembered)
    assert not novelty.is_unknown(torch.tensor([[1e6, 1e6]]), remembered).any()
    novelty.update(blobs(1, 2), remembered)
    assert novelty.is_unknown(torch.tensor([[1e6, 1e6]]), remembered).all()
    assert not novelty.is_unknown(torch.tensor([[1e6, 1e6]]), remembered[:1]).any()


def test_it_is_restored_as_it_was_and_a_damaged_one_refused() -> None:
    novelty, again = Novelty(0.1), Novelty(0.1)
    novelty.update(blobs(30, 1), blobs(20, 0))
    again.load_state_dict(novelty.state_dict())
    assert_same(again.state_dict(), novelty.state_dict())
    for damage in ({"distances": [-1.0]}, {"n_seen": 3}, {"false_alarms": 1.5}):
        with pytest.raises(ValueError, match=r"Novelty|saved distances"):
            Novelty(0.1).load_state_dict(novelty.state_dict() | damage)
    with pytest.raises(ValueError, match="between 0 and 1"):
        Novelty(5)


def test_slots_are_spread_over_all_that_are_filled() -> None:
    assert spread_slots(3).tolist() == [0, 1, 2]
    assert spread_slots(0).tolist() == []
    assert (len(spread_slots(10_000)), int(spread_slots(10_000)[-1])) == (256, 9960)
