from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from holdfast import Learner
from holdfast.core.batch import Batch
from holdfast.methods.er import ER
from holdfast.methods.er_ace import ERACE
from holdfast.methods.lode import LODE
from tests.support.bare import bare, replaying
from tests.support.by_hand import built
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model
from tests.support.toy import shown, toy_batches


def learned(method: str, setting: Any, n_batches: int = 30, **options: Any) -> Learner:
    return shown(replaying(method, setting=setting, lr=0.05, **options), n_batches)


@pytest.mark.parametrize("setting", ["task", "domain"])
def test_it_is_plain_replay_where_all_competing_classes_are_new(setting: Any) -> None:
    decoupled, plain = learned("lode", setting, rho=0.3), learned("er", setting)
    for one, other in zip(decoupled.method.model.parameters(), plain.method.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def after(kind: type, batches: list[Batch], **options: Any) -> dict[str, Any]:
    method = built(kind, small_model(), **options)
    for batch in batches:
        method.model.seen.add(batch.y, batch.task)
        method.observe(batch)
    return dict(method.model.state_dict())


def of_two_tasks() -> list[Batch]:
    """Samples of class 0 in the first task, then of 1 and 2 in the second, both in every batch."""
    first, second = small_batch(8), small_batch(8, seed=1, task=1)
    zeros = torch.zeros(8, dtype=torch.int64)
    both = torch.arange(8) % 2 + 1
    return [Batch(first.x, zeros, zeros), Batch(second.x, both, second.task), Batch(second.x + 1, both, second.task)]


def test_with_rho_of_the_number_of_finished_tasks_it_is_er_and_with_zero_er_ace() -> None:
    decoupled, replayed = after(LODE, of_two_tasks(), rho=1.0), after(ER, of_two_tasks())
    for name in ("head.weight", "backbone.0.weight"):
        torch.testing.assert_close(decoupled[name], replayed[name])
    decoupled, asymmetric = after(LODE, of_two_tasks(), rho=0.0), after(ERACE, of_two_tasks())
    for name in ("head.weight", "backbone.0.weight"):
        torch.testing.assert_close(decoupled[name], asymmetric[name])
    assert not torch.allclose(decoupled["head.weight"], replayed["head.weight"])


def test_without_tasks_the_classes_of_the_batch_are_new() -> None:
    decoupled, asymmetric = learned("lode", "free", rho=0.0), learned("er_ace", "free")
    assert_same(decoupled.memory.y, asymmetric.memory.y)
    for one, other in zip(decoupled.method.model.parameters(), asymmetric.method.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_loss_is_the_papers_in_the_third_task() -> None:
    learner = learned("lode", "class", 26, rho=3.0, replay_size=1000)
    x, y, task = toy_batches("class")[26]
    method = learner.method
    old = method.recall(Batch(x, y, torch.full_like(y, task or 0)))
    with torch.no_grad():
        o_new, o_old = method.model(x).tolist(), method.model(old.x).tolist()

    def log_sum(o: list[float], classes: Any) -> float:
        return math.log(sum(math.exp(o[c]) for c in classes))

    t, N, all_classes = 2, (4, 5), range(6)
    intra = sum(log_sum(o, N) - o[label] for o, label in zip(o_new, y.tolist(), strict=True)) / len(y)
    inter = sum(log_sum(o, all_classes) - log_sum(o, N) for o in o_new) / len(y)
    replayed = sum(log_sum(o, all_classes) - o[c] for o, c in zip(o_old, old.y.tolist(), strict=True)) / len(old)
    assert learner.observe(x, y, task) == pytest.approx(intra + 3.0 / t * inter + replayed, rel=1e-4)


def test_it_says_so_when_nothing_tells_new_classes_from_old() -> None:
    options = {"setting": "class", "retrieval": "old_tasks", "input_shape": (2,)}
    assert "nothing tells new classes from old ones" in str(bare("lode", rho=0.0, **options).method.caution())
    assert bare("lode", rho=0.1, **options).method.caution() is None
    with pytest.raises(ValueError, match=r"lode.rho: .* greater than or equal to 0, not -1"):
        bare("lode", rho=-1.0, input_shape=(2,))
