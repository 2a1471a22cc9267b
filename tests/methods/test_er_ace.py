from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from holdfast import Learner
from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.methods._base import ReplayMethod
from holdfast.methods.er import ER
from holdfast.methods.er_ace import ERACE
from tests.support.by_hand import built
from tests.support.small import small_batch, small_model


def loss_by_hand(model: Model, old: Batch, new: Batch) -> float:
    """L_ce(old, C_old ∪ C_curr) + L_ce(new, C_curr), sample by sample."""

    def mean_over(batch: Batch, classes: set[int]) -> float:
        total = 0.0
        for x, y in zip(batch.x, batch.y.tolist(), strict=True):
            scores = model(x[None])[0].tolist()
            total += math.log(sum(math.exp(scores[label]) for label in classes)) - scores[y]
        return total / len(batch)

    current = set(new.y.tolist())
    return mean_over(old, current | set(old.y.tolist())) + mean_over(new, current)


def of_classes(batch: Batch, *classes: int) -> Batch:
    return batch[sum(batch.y == label for label in classes).bool()]


def after(kind: type[ReplayMethod], old: Batch, new: Batch) -> tuple[Model, float]:
    method = built(kind, small_model(), replay_size=100)
    method.remember(old)
    return method.model, method.observe(new)


def test_new_samples_compete_within_their_batch_and_old_ones_among_all():
    old, new = of_classes(small_batch(12), 0, 2), of_classes(small_batch(12, seed=1), 1, 2)
    assert len(old) > 2
    assert len(new) > 2
    _, value = after(ERACE, old, new)
    assert value == pytest.approx(loss_by_hand(small_model(), old, new), rel=1e-5)


def test_new_samples_leave_the_rows_of_absent_classes_where_they_are():
    old, new = small_batch(0), of_classes(small_batch(12, seed=1), 1, 2)
    before = small_model().head.weight.detach()
    ace, plain = (after(kind, old, new)[0].head.weight.detach() for kind in (ERACE, ER))
    assert torch.equal(ace[0], before[0])
    assert not torch.equal(plain[0], before[0])
    assert not torch.equal(ace[1], before[1])


def test_with_every_class_in_the_batch_it_is_plain_replay():
    old, new = small_batch(6), small_batch(12, seed=1)
    new = replace(new, y=torch.arange(12) % 3)
    ace, plain = (after(kind, old, new) for kind in (ERACE, ER))
    assert ace[1] == pytest.approx(plain[1])
    torch.testing.assert_close(ace[0].head.weight, plain[0].head.weight)


@pytest.mark.parametrize(
    ("setting", "retrieval", "is_plain"),
    [
        ("class", "old_tasks", True),
        ("class", "uniform", False),
        ("free", "old_tasks", False),
    ],
)
def test_it_is_plain_replay_where_new_classes_are_never_replayed(setting: str, retrieval: str, is_plain: bool):
    options = {"setting": setting, "retrieval": retrieval, "input_shape": (3,), "n_classes": 4, "seed": 1}
    batches = [(torch.randn(6, 3), torch.arange(6) % 2 + 2 * task, task) for task in (0, 1)]
    ace, plain = Learner("er_ace", **options), Learner("er", passes=2, **options)  # as `er_ace` takes
    for learner in (ace, plain):
        for x, y, task in batches:
            learner.observe(x, y, None if setting == "free" else task)
    assert torch.equal(ace.method.model.head.weight, plain.method.model.head.weight) == is_plain
    assert (ace.method.caution() is not None) == is_plain
