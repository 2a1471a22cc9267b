from __future__ import annotations

import pytest
import torch

from tests.support.bare import bare
from tests.support.same import assert_same
from tests.support.toy import toy_batches


@pytest.mark.parametrize(
    ("cost", "learned"),
    [(1.0, [0, 1, 2, 3, 4, 5, 6, 7]), (0.5, [0, 1, 2, 3, 4, 5, 6, 7]), (2.0, [0, 2, 4, 6]), (2.5, [0, 3, 5])],
)
def test_while_a_batch_is_learned_others_pass(cost: float, learned: list[int]) -> None:
    batches = toy_batches("free")[:8]
    real = bare("er+real_time", cost=cost, memory=30, n_classes=6, lr=0.05)
    other = bare("er", memory=30, n_classes=6, lr=0.05)
    losses = [real.observe(x, y) for x, y, _ in batches]
    by_number = {i: other.observe(*batches[i][:2]) for i in learned}
    assert_same(real.method.model.backbone.state_dict(), other.method.model.backbone.state_dict())
    assert_same(real.memory.state_dict(), other.memory.state_dict())
    assert losses == [by_number[max(j for j in learned if j <= i)] for i in range(8)]


def test_a_cost_that_is_no_whole_number_holds_on_average() -> None:
    learner = bare("ncm+real_time", cost=3.3, backbone="identity")
    for _ in range(100):
        learner.observe(torch.zeros(1, 2), [0])
    assert int(learner.method.sums.counts.sum()) == 31  # the first one, and then 99 / 3.3


def test_what_passes_is_a_part_of_what_is_saved() -> None:
    stopped, other = (bare("er+real_time", cost=3.0, memory=30, lr=0.05) for _ in range(2))
    for i, (x, y, _) in enumerate(toy_batches("free")):
        other.observe(x, y)
        stopped.observe(x, y)
        if i == 4:
            again = bare("er+real_time", cost=3.0, memory=30, lr=0.05)
            again.load_state_dict(stopped.state_dict())
            stopped = again
    assert_same(stopped.state_dict(), other.state_dict())
