"""Methods that take several steps a batch, or learn new and replayed samples in one pass or two."""

from __future__ import annotations

import pytest
import torch

from holdfast import Learner
from holdfast.core.batch import Batch
from holdfast.methods._base import ReplayMethod
from tests.support.small import small_batch


def assert_recalls_anew(method: ReplayMethod, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method of three steps a batch that replays two samples draws other ones for each step."""
    method.remember(small_batch(10))
    recalled: list[Batch] = []
    draw = method.memory.draw
    monkeypatch.setattr(method.memory, "draw", lambda size: recalled.append(draw(size)) or recalled[-1])
    method.observe(small_batch(4, seed=1))
    assert [len(batch) for batch in recalled] == [2, 2, 2]
    assert not torch.equal(recalled[0].x, recalled[1].x)


def assert_learn_alike(once: Learner, twice: Learner, *, rtol: float, atol: float) -> None:
    """One pass over new and replayed samples leads to the weights of two passes, but for rounding."""
    rng = torch.Generator().manual_seed(0)
    for _ in range(12):
        x, y = torch.randn(5, 6, generator=rng), torch.randint(3, (5,), generator=rng)
        assert once.observe(x, y) == pytest.approx(twice.observe(x, y), rel=rtol)
    for a, b in zip(once.method.model.parameters(), twice.method.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)
