"""The last good weights of a stream."""

from __future__ import annotations

import math

import torch

from holdfast.core.recovery import EVERY, FACTOR, FIRST, Recovery
from tests.support.same import assert_same


def test_usual_losses_are_no_runaway_and_one_wild_batch_is_none_either() -> None:
    recovery = Recovery()
    losses = [2.3] * FIRST + [1.0, 0.5] * 50 + [20.0] + [0.5] * 50
    assert not any(recovery.ran_away(loss) for loss in losses)


def test_a_loss_that_grows_without_end_is_runaway() -> None:
    recovery = Recovery()
    seen = [recovery.ran_away(2.0**i) for i in range(-2, 12)]
    assert seen.index(True) < len(seen) - 1
    assert all(seen[seen.index(True) :])
    assert Recovery().ran_away(math.nan)


def test_a_wild_first_batch_does_not_make_wild_losses_usual() -> None:
    recovery = Recovery()
    assert recovery.ran_away(1e12)
    assert recovery.usual == 1e6


def test_weights_are_due_while_learning_is_as_usual_and_are_a_copy() -> None:
    recovery = Recovery()
    due = [recovery.is_due for _ in range(2 * EVERY + 1) if not recovery.ran_away(1.0)]
    assert sum(due) == 2
    while recovery.level < 3 * recovery.usual:
        recovery.ran_away(FACTOR)
    recovery.n_batches = EVERY
    assert not recovery.is_due
    weights = torch.zeros(2)
    recovery.keep({"w": weights})
    weights += 1
    assert recovery.good is not None
    assert recovery.good["w"].tolist() == [0.0, 0.0]


def test_it_is_restored_as_it_was() -> None:
    recovery, again = Recovery(), Recovery()
    for i in range(20):
        recovery.ran_away(float(i))
    recovery.keep({"w": torch.ones(2)})
    recovery.recovered()
    again.load_state_dict(recovery.state_dict())
    assert_same(again.state_dict(), recovery.state_dict())
    assert again.n_recovered == 1
