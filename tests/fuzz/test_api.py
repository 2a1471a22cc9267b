"""Random calls of a learner, valid and invalid: a refused call changes no bit, and a saved learner goes on alike."""

from __future__ import annotations

import math
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast import Learner, load_learner
from holdfast.core.classes import SETTINGS
from holdfast.methods._base import Diverged
from tests.support.interrupted import AtLine
from tests.support.learners import LEARNERS, N_INPUTS
from tests.support.same import assert_same
from tests.support.trees import compact
from tests.support.tries import tries

OTHERS: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in ("ncm", "slda", "analytic", "knn", "hedge", "mega2", "soft_gem")},
    "randumb": {"method": "randumb", "width": 12},
    "er, pooled and wide": {"method": "er", "weighting": "pooled", "steps_per_batch": 2, "memory": "1 KB"},
    "drr_plus, average": {"method": "drr_plus", "average": 0.8, "score_distillation": 0.5},
    "er, own network": {"method": "er", "average": 0.9, "momentum": 0.5},
}
REFUSALS = (ValueError, RuntimeError, Diverged, MemoryError)
N_CALLS = 12


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(N_INPUTS, 5), nn.LayerNorm(5), nn.Dropout(0.3))


def made(name: str, setting: str) -> tuple[Learner, dict[str, Any]]:
    options = {"backbone": {"name": "mlp", "hidden": [5]}, "memory": 12} | (LEARNERS | OTHERS)[name]
    own = {"backbone": network()} if "own network" in name else {}
    return Learner(**(options | own), setting=setting), own


def everything(learner: Learner) -> dict[str, Any]:
    """A copy of the state, of torch's generator, and of the weights of a network that was not used yet."""
    own = {} if learner._backbone is None else compact(dict(learner._backbone.state_dict()))
    return {"state": compact(learner.state_dict()), "rng": torch.get_rng_state(), "own": own}


# Arguments.


def any_x(rng: random.Random) -> Any:
    n = rng.choice([1, 1, 2, 3, 4, 4, 4, 9])
    x = torch.randn(n, N_INPUTS, generator=torch.Generator().manual_seed(rng.randrange(10**6)))
    kind = rng.randrange(16)
    if kind < 8:
        return x
    if kind == 8:
        return x * rng.choice([1e-30, 1e4, 1e15, 1e20, math.nan, math.inf])
    if kind == 9:
        return rng.choice([x.numpy(), x.tolist(), x.double(), x.numpy()[::-1], x.requires_grad_(), x.half()])
    if kind == 10:
        return rng.choice([x[0], x[:0], x[:, :2], x[..., None], x.int(), x.bool(), x.to(torch.uint8), x.cfloat()])
    if kind == 11:
        return rng.choice([None, "x", 3, [], [[]], {}, {"x": 1}, object(), [[1.0], [1.0, 2.0]], np.array(["a"])])
    x[rng.randrange(n), rng.randrange(N_INPUTS)] = rng.choice([0.0, 1e15, -1e15, 3e38, math.nan, -math.inf])
    return x


def any_y(rng: random.Random, x: Any) -> Any:
    n = len(x) if hasattr(x, "__len__") else 3
    y = [rng.choice([0, 1, 2, 3, 4, rng.randrange(8)]) for _ in range(n)]
    kind = rng.randrange(12)
    if kind < 8:
        return y
    if kind == 8:
        return rng.choice([np.array(y), torch.tensor(y), [float(label) for label in y], tuple(y)])
    if kind == 9:
        return rng.choice([[*y, 0], y[:-1], [], None, "labels", 1, [y], [str(label) for label in y], {}, [None] * n])
    if n:
        y[rng.randrange(n)] = rng.choice([-1, 40, 10**5, 10**9, 10**30, 0.5, math.nan, True, None])
    return y


def any_task(rng: random.Random, setting: str, x: Any) -> Any:
    n = len(x) if hasattr(x, "__len__") else 3
    if rng.random() < 0.85:
        return None if setting == "free" else rng.choice([0, 0, 1, 1, 2, [rng.randrange(3) for _ in range(n)]])
    return rng.choice([None, 0, -1, 10**9, "first", 0.5, True, [], [0] * (n + 1), [-2] * n, torch.tensor(1), math.nan])


def call(learner: Learner, name: str, rng: random.Random) -> Any:
    setting = learner.settings.setting
    x = any_x(rng)
    if name == "observe":
        return learner.observe(x, any_y(rng, x), any_task(rng, setting, x))
    if name in ("predict", "scores"):
        task = any_task(rng, setting if setting == "task" else "free", x)
        return getattr(learner, name)(x, task)
    if name == "features":
        return learner.features(x)
    if name == "announce":
        classes = rng.choice([[0], [5, 6], [], [-1], [10**9], [0.5], ["a"], [9]])
        return learner.announce(classes, any_task(rng, setting, [0]))
    if name == "forget":
        return learner.forget(x, any_y(rng, x))
    if name == "merge":
        return learner.merge(rng.choice([learner, Learner("ncm"), made("slda", setting)[0]]))
    if name == "load_state_dict":
        broken = learner.state_dict()
        broken[rng.choice(list(broken))] = rng.choice([None, 1, {}, "x", []])
        return learner.load_state_dict(broken)
    return getattr(learner, name)()


CHANGES = {"observe": 12, "announce": 1, "end_task": 2, "forget": 1, "merge": 1, "load_state_dict": 1}
READS = {"predict": 2, "scores": 1, "features": 1, "snapshot": 1, "state_dict": 1}


def one_call(learner: Learner, rng: random.Random) -> str:
    """Make a random call; fail if it is not done and something changed, or if reading changed something."""
    names = CHANGES | READS
    name = rng.choices(list(names), list(names.values()))[0]
    before = everything(learner)
    interruption = AtLine(rng.randrange(1, 900)) if rng.random() < 0.2 else None
    seed = rng.randrange(10**9)
    try:
        if interruption is None:
            call(learner, name, random.Random(seed))
        elif interruption.run(call, learner, name, random.Random(seed)):
            torch.set_grad_enabled(True)  # which reading does not look after
            raise Diverged("interrupted")
    except REFUSALS as error:
        after_its_last_line = interruption is not None and "transactions.py" in interruption.where
        if not after_its_last_line:
            assert_same(everything(learner), before, f"{name} refused with {error!r}")
        return f"{name} refused"
    if name in READS:
        assert_same(everything(learner), before, name)
    return name


def goes_on_alike(learner: Learner, own: dict[str, Any], path: Path) -> None:
    """Save and load; fail unless both have the same bits, and learn and predict to the same bits."""
    learner.save(path)
    options = {"backbone": network()} if own else {}
    again = load_learner(path, **options)
    assert_same(again.state_dict(), learner.state_dict())
    task = None if learner.settings.setting == "free" else 1
    dtype = learner.input_dtype or torch.float32
    x = torch.ones(2, *(learner.input_shape or (N_INPUTS,))).to(dtype)
    outcomes: list[list[Tensor]] = []
    for each in (learner, again):
        torch.manual_seed(0)
        given = 1 if learner.settings.setting == "task" else None
        try:
            each.observe(x, [0, 1], task)
            outcomes.append([each.scores(x, given), each.snapshot().scores(x, given), each.features(x)])
        except Diverged:  # of numbers near the largest that are taken
            outcomes.append([])
    assert_same(*outcomes)
    assert_same(again.state_dict(), learner.state_dict())


def test_random_calls_change_nothing_when_refused_and_are_saved_whole(tmp_path: Path):
    n_refused = n_done = 0
    for rng in tries(seed=4, at_least=40):
        name, setting = rng.choice(list(LEARNERS | OTHERS)), rng.choice(SETTINGS)
        learner, own = made(name, setting)
        told: list[str] = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of numbers that overflow
                while len(told) < N_CALLS:
                    told += [one_call(learner, rng)]
                goes_on_alike(learner, own, tmp_path / "learner")
        except Exception as error:
            error.add_note(f"{name}, {setting}: {told}")
            raise
        n_refused += sum(each.endswith("refused") for each in told)
        n_done += sum(not each.endswith("refused") for each in told)
    assert n_refused > 0
    assert n_done > 0
