from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast import Learner, load_learner
from tests.support.bare import bare
from tests.support.same import assert_same
from tests.support.toy import toy_batches


@pytest.mark.parametrize("delay", [0, 1, 4])
@pytest.mark.parametrize(("method", "setting"), [("er", "free"), ("er", "class"), ("finetune", "task")])
def test_a_batch_is_learned_when_so_many_more_have_come(method: str, setting: Any, delay: int) -> None:
    batches = toy_batches(setting)[:12]
    options: dict[str, Any] = {"setting": setting, "memory": 30, "lr": 0.05, "n_classes": 6}
    delayed, other = bare(f"{method}+delayed", delay=delay, **options), bare(method, **options)
    losses = [delayed.observe(*batch) for batch in batches]
    expected = [other.observe(*batch) for batch in batches[: 12 - delay]]
    assert losses == [0.0] * delay + expected
    assert_same(delayed.method.model.backbone.state_dict(), other.method.model.backbone.state_dict())


def test_what_waits_is_a_part_of_what_is_saved() -> None:
    learner = bare("slda+delayed", delay=3, backbone="identity")
    for x, y, _ in toy_batches("free")[:5]:
        learner.observe(x, y)
    again = bare("slda+delayed", delay=3, backbone="identity")
    again.load_state_dict(learner.state_dict())
    for x, y, _ in toy_batches("free")[5:]:
        assert_same(learner.observe(x, y), again.observe(x, y))
    assert_same(learner.state_dict(), again.state_dict())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda waiting: waiting.append(waiting[0]), "3 batches wait"),
        (lambda waiting: waiting.__setitem__(0, (1, 2, 3)), "waiting"),
        (lambda waiting: waiting.__setitem__(0, (torch.zeros(2, 8), *waiting[0][1:])), "not as many inputs"),
        (lambda waiting: waiting[0][1].fill_(5), "never seen"),
    ],
)
def test_a_file_with_other_batches_is_refused(change: Any, told: str) -> None:
    learner = bare("ncm+delayed", delay=2, backbone="identity", n_classes=6)
    for x, y, _ in toy_batches("free")[:3]:
        learner.observe(x, y)
    state = copy.deepcopy(learner.method.state_dict())
    change(state["waiting"])
    with pytest.raises(ValueError, match=told):
        learner.method.load_state_dict(state)


@pytest.mark.parametrize("method", ["ewc", "mas", "rwalk", "si"])
def test_batches_that_wait_are_no_part_of_what_holds_weights(method: str, tmp_path: Path) -> None:
    learner = Learner(f"{method}+delayed", delay=2, input_shape=(3,))
    x = torch.eye(3)
    for y in ([0, 1, 0], [1, 0, 2], [3, 2, 1]):  # the head grows while batches wait
        learner.observe(x, y)
    learner.save(tmp_path / "learner")
    again = load_learner(tmp_path / "learner")
    for each in (learner, again):
        each.observe(x, [4, 0, 1])
    assert_same(again.state_dict(), learner.state_dict())
