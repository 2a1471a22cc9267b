from __future__ import annotations

import pytest
import torch
from torch import Tensor

from holdfast import Learner
from tests.support.same import assert_same
from tests.support.toy import toy_batches


def images(seed: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(4, 3, 8, 8, generator=rng), torch.randint(3, (4,), generator=rng)


def learned(method: str, **options: object) -> Learner:
    learner = Learner(method, memory=20, backbone="reduced_resnet18", n_classes=3, lr=0.05, setting="class", **options)
    for seed in range(4):
        learner.observe(*images(seed), task=seed // 2)
    return learner


def test_drr_with_it_learns_as_drr_plus_does_with_mirror_images() -> None:
    wrapped, option = learned("drr+mirror"), learned("drr_plus", mirror=True)
    assert_same(wrapped.method.model.state_dict(), option.method.model.state_dict())
    assert not torch.equal(wrapped.method.model.head.weight, learned("drr").method.model.head.weight)


@pytest.mark.parametrize("method", ["er+mirror", "er+mkd+mirror", "er+mirror+mkd", "er+rar+mirror"])
def test_memory_gets_each_image_once_as_it_came(method: str) -> None:
    learner = learned(method, **({"repeats": 2} if "rar" in method else {}))
    assert learner.memory is not None
    came = torch.cat([images(seed)[0] for seed in range(4)])
    stored = learner.memory.x
    assert len(stored) == len(came)
    assert_same(stored.sort(dim=0).values, came.sort(dim=0).values)


def test_it_predicts_by_the_mean_score_of_an_image_and_its_mirror_image() -> None:
    wrapped, plain = learned("er+mirror"), Learner("er", backbone="reduced_resnet18", n_classes=3, setting="class")
    x, y = images(9)
    plain.observe(x, y, task=0)
    plain.announce([0, 1, 2], task=0)
    plain.method.model.load_state_dict(wrapped.method.model.state_dict())
    torch.testing.assert_close(wrapped.scores(x), (plain.scores(x) + plain.scores(x.flip(-1))) / 2)


def test_vectors_are_learned_as_they_are() -> None:
    wrapped, plain = (Learner(method, memory=20, setting="class") for method in ("er+mirror", "er"))
    for x, y, task in toy_batches("class")[:6]:
        wrapped.observe(x, y, task)
        plain.observe(x, y, task)
    assert_same(wrapped.method.model.state_dict(), plain.method.model.state_dict())
    assert_same(wrapped.scores(x), plain.scores(x))
