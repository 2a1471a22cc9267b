"""The networks of `hedge` against autograd and torch's Adam, its shares against slow loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast import Learner
from holdfast.methods._networks import Networks
from holdfast.methods.hedge import LEAST_SHARE, Hedge


def networks(rates: tuple[float, ...], n_classes: int = 3) -> Networks:
    made = Networks(4, 5, n_classes, rates, torch.Generator().manual_seed(0))
    made.weights += 0.1 * torch.randn(made.weights.shape, generator=torch.Generator().manual_seed(1))
    return made


def as_module(of: Networks, k: int) -> nn.Sequential:
    """Network k as one of torch's."""
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, of.n_classes))
    layers = of._layers()
    for i, linear in enumerate(module[::2]):
        linear.weight.data = layers[2 * i][k].T.clone()
        linear.bias.data = layers[2 * i + 1][k, 0].clone()
    return module


def test_a_step_is_that_of_autograd_and_adam_with_each_rate() -> None:
    ours = networks((0.01, 0.1))
    theirs = [as_module(ours, k) for k in range(2)]
    adams = [torch.optim.Adam(module.parameters(), lr=rate) for module, rate in zip(theirs, (0.01, 0.1), strict=True)]
    rng = torch.Generator().manual_seed(2)
    for _ in range(5):
        x, y = torch.randn(2, 7, 4, generator=rng), torch.randint(3, (2, 7), generator=rng)
        competing = torch.rand(2, 7, 3, generator=rng) < 0.7
        competing.scatter_(2, y[:, :, None], True)
        ours.learn(x, y, competing)
        for k in range(2):
            scores = theirs[k](x[k]).masked_fill(~competing[k], -torch.inf)
            adams[k].zero_grad()
            F.cross_entropy(scores, y[k]).backward()
            adams[k].step()
    probe = torch.randn(6, 4, generator=rng)
    for k in range(2):
        torch.testing.assert_close(ours.scores(probe)[k], theirs[k](probe), rtol=1e-4, atol=1e-5)


def test_growing_leaves_the_scores_of_known_classes() -> None:
    ours = networks((0.01,))
    ours.learn(torch.randn(1, 7, 4), torch.randint(3, (1, 7)), None)
    x = torch.randn(6, 4)
    before = ours.scores(x)
    ours.grow(5)
    assert torch.equal(ours.scores(x)[:, :, :3], before)
    assert torch.equal(ours.scores(x)[:, :, 3:], torch.zeros(1, 6, 2))


def stream(n: int = 30) -> list[tuple[Tensor, Tensor]]:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(n, 10, 3, generator=rng) * torch.tensor([1.0, 1000.0, 0.01]) + torch.tensor([0.0, 1e5, 0.0])
    return [(batch, (batch[:, 1] > 1e5).long()) for batch in x]


def learner(**options: Any) -> Learner:
    return Learner("hedge", **{"backbone": "identity", "hidden": 8, "memory": 50, "recent": 40} | options)


def method_of(made: Learner) -> Hedge:
    assert isinstance(made.method, Hedge)
    return made.method


def test_shares_follow_the_faded_losses_on_samples_before_they_are_learned() -> None:
    made = learner(fading=0.9, sharpness=0.5, n_classes=2, trends=())
    expected = [0.0] * 6
    for x, y in stream(4):
        if made.n_observed:
            method = method_of(made)
            method.scaling.update(x)  # as observe does before it asks the networks
            inputs = method.scaling(x)
            method.scaling = _taken_back(method, x, made)
            for k in range(6):
                chances = method.networks.scores(inputs)[k].softmax(dim=1)
                expected[k] *= 0.9**10
                for i in range(10):
                    p = chances[i, y[i]].item()
                    expected[k] -= math.log((1 - LEAST_SHARE) * p + LEAST_SHARE / 2)
        made.observe(x, y)
        if made.n_observed == 1:
            expected = method_of(made).losses.tolist()
            assert expected == pytest.approx([10 * math.log(2)] * 6)  # the last layer begins at 0
    losses = method_of(made).losses.tolist()
    assert losses == pytest.approx(expected, rel=1e-4)
    shares = [math.exp(-0.5 * loss) for loss in losses]
    assert method_of(made)._shares().tolist() == pytest.approx([share / sum(shares) for share in shares])


def _taken_back(method: Hedge, x: Tensor, made: Learner) -> Any:
    """The standardisation without the batch just taken in."""
    again = type(method.scaling)(x.shape[1])
    for earlier, _ in stream(4)[: made.n_observed]:
        again.update(earlier)
    return again


def test_raw_columns_of_any_scale_are_learned() -> None:
    made, right = learner(), 0
    for i, (x, y) in enumerate(stream(120)):
        if i >= 60:
            right += int((made.predict(x) == y).sum())
        made.observe(x, y)
    assert right > 0.95 * 600


def test_what_is_usual_now_decides_where_the_class_depends_on_it() -> None:
    """A random walk; the class says if a value is above the mean of the last ones."""
    rng = torch.Generator().manual_seed(0)
    walk = (torch.randn(3000, generator=rng) + 0.0).cumsum(0)
    x = (walk + 2 * torch.randn(3000, generator=rng))[:, None]
    y = (x[:, 0] > walk).long()
    right = {}
    for trends in ((), (16,)):
        made = learner(trends=trends)
        right[trends] = 0
        for start in range(0, 3000, 10):
            if start >= 1000:
                right[trends] += int((made.predict(x[start : start + 10]) == y[start : start + 10]).sum())
            made.observe(x[start : start + 10], y[start : start + 10])
    assert right[(16,)] > right[()] + 200


def test_prediction_leaves_the_learner_as_it_is_and_gives_probabilities() -> None:
    made = learner()
    for x, y in stream(5):
        made.observe(x, y)
    first, again = made.scores(x), made.scores(x)
    assert torch.equal(first, again)
    torch.testing.assert_close(first.exp().sum(dim=1), torch.ones(10))


def test_the_newest_samples_are_those_of_the_end_of_the_stream() -> None:
    made = learner(recent=25)
    batches = stream(7)
    for x, y in batches:
        made.observe(x, y)
    newest = torch.cat([x for x, _ in batches])[-25:]
    stored = method_of(made).newest.x
    assert sorted(stored[:, 1].tolist()) == sorted(newest[:, 1].tolist())


@pytest.mark.parametrize(
    "wrong",
    [{"rates": ()}, {"rates": (2.0,)}, {"trends": (0,)}, {"recent": 0}, {"fading": 1.5}, {"average": 0.9}],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        learner(input_shape=(3,), **wrong)


@pytest.mark.parametrize("name", ["losses", "levels"])
def test_saved_numbers_of_another_kind_are_refused(name: str) -> None:
    learner = Learner("hedge", backbone="identity", hidden=4)
    learner.observe([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    state = learner.method.state_dict()
    for wrong in (state[name].to(torch.int8), torch.full_like(state[name], math.nan)):
        with pytest.raises(ValueError, match=f"the saved {name}"):
            learner.method.load_state_dict({**state, name: wrong})
