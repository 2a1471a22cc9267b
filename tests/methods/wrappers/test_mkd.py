from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast import Learner
from holdfast.core.batch import Batch
from holdfast.methods.er import ER
from holdfast.methods.wrappers._base import augmented
from holdfast.parts import Unknown, find
from tests.support.by_hand import LR, built
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model
from tests.support.toy import toy_batches


def log_softmax(o: list[float], tau: float) -> list[float]:
    total = math.log(sum(math.exp(each / tau) for each in o))
    return [each / tau - total for each in o]


def kd(t: Tensor, s: Tensor, tau: float) -> float:
    """τ² · mean_i Σ_c p_t log(p_t / p_s)."""
    total = 0.0
    for held, now in zip(t.tolist(), s.tolist(), strict=True):
        pairs = zip(log_softmax(held, tau), log_softmax(now, tau), strict=True)
        total += sum(math.exp(a) * (a - b) for a, b in pairs)
    return tau**2 * total / len(t)


def after_two_batches(**options: Any) -> Any:
    method = built(find("methods", "er+mkd"), small_model(), replay_size=4, **options)
    for seed in (0, 1):
        method.observe(small_batch(4, seed=seed))
    return method


def test_the_loss_is_that_of_the_method_and_two_distances_to_the_teacher() -> None:
    method = after_two_batches(teacher_rate=0.3, teacher_weight=2.5, teacher_temperature=3.0)
    student = copy.deepcopy(method.model)
    teacher = copy.deepcopy(method.model)
    for weight, held in zip(teacher.parameters(), method.teacher.tensors, strict=False):
        weight.data = held.clone()
    batch, rng = small_batch(4, seed=2), method.view_rng.clone_state()
    view = augmented(batch.x, "contrastive", rng)
    drawn = copy.deepcopy(method.memory)
    old = method.retrieval.pick(drawn, 4, batch, student)
    old_view = augmented(old.x, "contrastive", rng)

    expected = student.loss(Batch(view, batch.y, batch.task)) + student.loss(Batch(old_view, old.y, old.task))
    X, X_hat = torch.cat([batch.x, old.x]), torch.cat([view, old_view])
    with torch.no_grad():
        held = teacher(X_hat)
        distances = kd(held, student(X_hat), 3.0) + kd(held, student(X), 3.0)
    assert method.observe(batch) == pytest.approx(expected.item() + 2.5 / 2 * distances, rel=1e-5)


def test_the_gradient_does_not_go_through_the_teacher() -> None:
    method = after_two_batches(views="none", teacher_weight=2.0)
    student, before = copy.deepcopy(method.model), copy.deepcopy(method.model)
    teacher = [held.clone() for held in method.teacher.tensors]
    batch = small_batch(4, seed=2)
    old = method.retrieval.pick(copy.deepcopy(method.memory), 4, batch, student)
    X = torch.cat([batch.x, old.x])
    hidden = torch.tanh(X @ teacher[0].T + teacher[1])
    p_t = torch.softmax((hidden @ teacher[2].T + teacher[3]) / 4, dim=1)
    distance = 16 * (p_t * (p_t.log() - (student(X) / 4).log_softmax(dim=1))).sum(dim=1).mean()
    (student.loss(old) + student.loss(batch) + 2.0 * distance).backward()
    method.observe(batch)
    pairs = zip(method.model.parameters(), before.parameters(), student.parameters(), strict=True)
    for after, then, by_hand in pairs:
        assert by_hand.grad is not None
        torch.testing.assert_close(after, then - LR * by_hand.grad, rtol=1e-4, atol=1e-6)


def test_the_teacher_is_the_average_of_the_weights_after_each_batch() -> None:
    method = built(find("methods", "er+mkd"), small_model(), teacher_rate=0.25)
    by_hand = [weight.detach().clone() for weight in method.model.parameters()]
    for n in range(1, 40):
        method.observe(small_batch(4, seed=n))
        rate = max(0.25, 9 / (n + 9))  # the last tenth of the stream, at first
        by_hand = [(1 - rate) * t + rate * w.detach() for t, w in zip(by_hand, method.model.parameters(), strict=True)]
    for held, expected in zip(method.teacher.tensors, by_hand, strict=False):
        torch.testing.assert_close(held, expected, rtol=1e-4, atol=1e-6)


def test_it_predicts_halfway_between_the_model_and_its_teacher() -> None:
    method = after_two_batches()
    halfway = copy.deepcopy(method.model)
    for weight, held in zip(halfway.parameters(), method.teacher.tensors, strict=False):
        weight.data = (weight.data + held) / 2
    x, task = small_batch(5).x, torch.zeros(5, dtype=torch.int64)
    with method.settled():
        scores = method.scores(x, task)
    torch.testing.assert_close(scores, halfway(x).detach())
    assert not torch.allclose(scores, method.scores(x, task))


def test_batch_statistics_are_those_of_the_model() -> None:
    learner = Learner("er+mkd", setting="class", backbone="reduced_resnet18", input_shape=(3, 8, 8), n_classes=2)
    rng = torch.Generator().manual_seed(0)
    for _ in range(3):
        learner.observe(torch.rand(4, 3, 8, 8, generator=rng), torch.tensor([0, 1, 0, 1]), 0)
    norms = [buffer.clone() for buffer in learner.method.model.buffers()]
    with learner.method.settled():
        assert_same(list(learner.method.model.buffers()), norms)
    assert_same(list(learner.method.model.buffers()), norms)


def test_memory_keeps_samples_as_they_came() -> None:
    learner = Learner("er+mkd+rar", repeats=2, setting="class", memory=100, backbone={"name": "mlp", "hidden": [8]})
    came = []
    for x, y, task in toy_batches("class")[:5]:
        learner.observe(x, y, task)
        came += x.tolist()
    assert learner.memory is not None
    assert sorted(learner.memory.x.tolist()) == sorted(came)


def test_without_weight_and_views_it_learns_as_the_method_does() -> None:
    learners = []
    for name, options in (("er", {}), ("er+mkd", {"views": "none", "teacher_weight": 0.0})):
        learner = Learner(name, setting="class", memory=30, backbone={"name": "mlp", "hidden": [8]}, **options)
        for x, y, task in toy_batches("class"):
            learner.observe(x, y, task)
        learners.append(learner)
    weights = [list(learner.method.model.parameters()) for learner in learners]
    assert_same(weights[0], weights[1])


def test_it_learns_a_head_that_grows() -> None:
    learner = Learner("der+mkd", memory=30, lr=0.05, backbone={"name": "mlp", "hidden": [8]})
    for x, y, _ in toy_batches("free"):
        learner.observe(x, y)
    assert learner.method.model.head.n_classes == 6
    assert isinstance(learner.method, find("methods", "der"))


@pytest.mark.parametrize("method", ["agem", "mer", "scr", "slda", "knn", "finetune", "er+mkd"])
def test_it_refuses_a_method_that_it_does_not_fit(method: str) -> None:
    with pytest.raises(Unknown, match="cannot be put around"):
        Learner(f"{method}+mkd", input_shape=(2,))


def test_it_refuses_a_second_average() -> None:
    with pytest.raises(ValueError, match="leave average out"):
        Learner("er+mkd", average=0.9, input_shape=(2,))


def test_an_unknown_wrapper_is_named_with_the_nearest() -> None:
    with pytest.raises(Unknown, match="did you mean 'mkd'"):
        Learner("er+mkb", input_shape=(2,))


def test_a_wrapped_method_is_of_the_class_of_the_method() -> None:
    assert issubclass(find("methods", "er+mkd"), ER)
    assert find("methods", "er+mkd") is find("methods", "er+mkd")


@pytest.mark.parametrize("method", ["er+mkd", "er+ncm", "er+review", "er+mkd+ncm", "er+mkd+review"])
def test_a_snapshot_predicts_as_the_learner_did(method: str) -> None:
    learner = Learner(method, setting="class", memory=30, backbone={"name": "mlp", "hidden": [8]})
    batches = toy_batches("class")
    for x, y, task in batches[:20]:
        learner.observe(x, y, task)
    snapshot, scores = learner.snapshot(), learner.scores(batches[0][0])
    learner.observe(*batches[20])
    assert torch.equal(snapshot.scores(batches[0][0]), scores)
    assert not torch.equal(learner.scores(batches[0][0]), scores)
