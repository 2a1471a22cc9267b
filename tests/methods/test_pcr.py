from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast import Learner
from holdfast.core.augment import contrastive_views
from holdfast.core.batch import Batch
from tests.support.bare import replaying
from tests.support.toy import shown, toy_batches

TAU = 0.09


def learned(method: str, setting: Any = "class", n_batches: int = 16, **options: Any) -> Learner:
    return shown(replaying(method, setting=setting, lr=0.01, **options), n_batches)


def pcr_by_hand(learner: Learner, old: Batch, new: Batch, rng: torch.Generator) -> tuple[float, Tensor, Tensor]:
    """L = mean_i -1/|P(i)| Σ_p log(exp(h_i·w_{y_p}/τ) / Σ_k exp(h_i·w_{y_k}/τ)); and features and classes."""
    model = learner.method.model
    x = torch.cat([torch.cat([part.x, contrastive_views(part.x, rng)]) for part in (old, new)])
    y = torch.cat([old.y, old.y, new.y, new.y])
    features = model.features(x).detach()
    h, w = F.normalize(features, dim=1), F.normalize(model.head.weight.detach(), dim=1)
    losses = []
    for i in range(len(y)):
        e = [math.exp(float(h[i] @ w[y[k]]) / TAU) for k in range(len(y))]
        P = [p for p in range(len(y)) if y[p] == y[i]]
        losses.append(-sum(math.log(e[p] / sum(e)) for p in P) / len(P))
    return sum(losses) / len(losses), features, y


def at_step(learner: Learner, step: int, setting: Any = "class") -> tuple[Batch, Batch, torch.Generator]:
    """What the method will replay beside a batch, the batch, and the random numbers of its views."""
    x, y, task = toy_batches(setting)[step]
    batch = Batch(x, y, torch.full_like(y, -1 if task is None else task))
    learner.method.replay_size = 1000
    rng = torch.Generator()
    rng.set_state(learner.method.rng.get_state())
    return learner.method.recall(batch), batch, rng


@pytest.mark.parametrize("setting", ["class", "free"])
def test_the_loss_is_the_papers_over_samples_and_views(setting: Any) -> None:
    learner = learned("pcr", setting)
    old, new, rng = at_step(learner, 16, setting)
    expected, _, _ = pcr_by_hand(learner, old, new, rng)
    assert learner.observe(*toy_batches(setting)[16]) == pytest.approx(expected, rel=1e-4)


def test_rows_of_classes_that_are_not_in_the_joint_batch_stay() -> None:
    learner = learned("pcr", "class", 30)
    before = learner.method.model.head.weight.detach().clone()
    learner.method.replay_size = 0
    learner.observe(*toy_batches("class")[30])  # of the classes 4 and 5
    after = learner.method.model.head.weight.detach()
    assert torch.equal(after[:4], before[:4])
    assert not torch.equal(after[4:], before[4:])


def test_it_predicts_the_nearest_proxy() -> None:
    learner = learned("pcr", "class", 36)
    x, _, _ = toy_batches("class")[0]
    cosines = F.normalize(learner.features(x), dim=1) @ F.normalize(learner.method.model.head.weight.detach(), dim=1).T
    torch.testing.assert_close(learner.scores(x), cosines / TAU)


def test_hpcr_swings_the_loss_and_holds_scores_and_similarities() -> None:
    alpha, beta = 0.7, 0.4
    learner = learned("hpcr", "class", 15, score_weight=alpha, similarity_weight=beta, period=8)
    method = learner.method
    old, new, rng = at_step(learner, 15)  # the fourth batch of the second task
    pcr, features, y = pcr_by_hand(learner, old, new, rng)
    tau_s = 0.5 * (1.8 - 0.5625) * (1 - math.cos(2 * math.pi * 3 / 8)) + 0.5625

    n_old = 2 * len(old)
    proxies = F.normalize(method.model.head.weight.detach(), dim=1)
    now, then = features[:n_old], old.extra["feature"].repeat(2, 1)
    squares, n_compared = 0.0, 0
    for row in range(n_old):
        stored, n_units = old.extra["logits"][row % len(old)], int(old.extra["n_units"][row % len(old)])
        for label in y.tolist():
            if label < n_units:
                o = float(F.normalize(now[row], dim=0) @ proxies[label]) / TAU
                squares, n_compared = squares + (o - float(stored[label])) ** 2, n_compared + 1

    def shares(rows: Tensor) -> Tensor:
        unit = F.normalize(rows, dim=1)
        similar = torch.stack([torch.cat([(u @ unit.T)[:i], (u @ unit.T)[i + 1 :]]) for i, u in enumerate(unit)])
        return (similar / TAU).softmax(dim=1)

    turned = float(-(shares(then) * shares(now).log()).sum(dim=1).mean())
    expected = tau_s * pcr + alpha * squares / n_compared + beta * turned
    assert learner.observe(*toy_batches("class")[15]) == pytest.approx(expected, rel=1e-3)


def test_hpcr_without_swing_and_weights_is_pcr() -> None:
    flat = {"score_weight": 0.0, "similarity_weight": 0.0, "least_weight": 1.0, "greatest_weight": 1.0}
    holistic, plain = learned("hpcr", "class", 20, **flat), learned("pcr", "class", 20)
    for one, other in zip(holistic.method.model.parameters(), plain.method.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_hpcr_stores_what_it_gave_before_it_learned_a_sample() -> None:
    learner = learned("hpcr", "class", 0)
    x, y, task = toy_batches("class")[0]
    learner.observe(x, y, task)
    fresh = replaying("hpcr", setting="class")
    fresh._begin(Batch(x, y, y))
    fresh.method.grow(2)
    stored = learner.memory
    assert stored is not None
    features = fresh.features(stored.x)
    torch.testing.assert_close(stored.extra("feature"), features)
    assert stored.extra("n_units").tolist() == [2] * len(stored)
    torch.testing.assert_close(stored.extra("logits"), fresh.method.scores_of(features).detach())
