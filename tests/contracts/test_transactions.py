"""An observe learns its batch, or leaves every bit as it was, whatever is raised inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from holdfast import Learner
from holdfast.core.batch import Batch
from holdfast.core.checkpoint import checksum_of
from holdfast.methods._base import Diverged, ReplayMethod
from holdfast.parts import find, names
from tests.support.interrupted import AtLine
from tests.support.same import assert_same
from tests.support.toy import N_FEATURES, toy_batches
from tests.support.trees import compact

BATCHES = toy_batches("class")[::3]  # tasks change at the batches 4 and 8
N_BEFORE = 6
N_POINTS = 6  # at which an observe is interrupted
OPTIONS: dict[str, dict[str, Any]] = {
    "ewc": {"fisher_every": 2},
    "rwalk": {"fisher_every": 2},
    "mas": {"consolidate_every": 2},
    "mer": {"replay_size": 2},
    "scr": {"replay_size": 5},
    "hedge": {"replay_size": 5},
    "randumb": {"width": 20},
    "drr_plus": {"score_distillation": 1.0, "between_samples": True},
    "der": {"label_weight": 0.5},
}
VARIANTS: dict[str, dict[str, Any]] = {name: {"method": name} | OPTIONS.get(name, {}) for name in names("methods")}
VARIANTS |= {f"er, {selection}": {"method": "er", "selection": selection} for selection in names("selections")}
VARIANTS |= {
    "er, average": {"method": "er", "average": 0.9},
    "er, momentum": {"method": "er", "momentum": 0.9, "steps_per_batch": 2},
    "er, adam": {"method": "er", "optimizer": "adam", "lr": 0.01},
    "er, shapley both": {"method": "er", "selection": "shapley", "retrieval": "shapley"},
    "er, bytes": {"method": "der", "memory": "2 KB"},
    "drr, relative": {"method": "drr", "selection": {"name": "centroid", "relative": True, "max_centroids": 3}},
    "drr, by memory": {"method": {"name": "drr", "classifier": "memory"}, "average": 0.9},
    "agem, herding": {"method": "agem", "selection": "mean_of_features"},
    "finetune, own network": {"method": "finetune"},
    "er, own network": {"method": "er", "momentum": 0.5},
}


def learner_of(variant: str, **options: Any) -> Learner:
    settings = {"setting": "class", "memory": 12, "lr": 0.05, "backbone": {"name": "mlp", "hidden": [6]}}
    settings |= VARIANTS[variant] | options
    if "own network" in variant:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            settings["backbone"] = nn.Sequential(nn.Linear(N_FEATURES, 6), nn.BatchNorm1d(6), nn.Dropout(0.3))
    return Learner(**settings)


def taught(variant: str, n: int = N_BEFORE, **options: Any) -> Learner:
    learner = learner_of(variant, **options)
    torch.manual_seed(1)
    for x, y, task in BATCHES[:n]:
        learner.observe(x, y, task)
    return learner


def state_of(learner: Learner) -> dict[str, Any]:
    modes = [] if learner._method is None else [module.training for module in learner.method.model.modules()]
    hooks = [] if learner._method is None else [len(m._forward_hooks) for m in learner.method.model.modules()]
    return {"state": compact(learner.state_dict()), "rng": torch.get_rng_state(), "modes": modes, "hooks": hooks}


@contextmanager
def unchanged(learner: Learner) -> Iterator[None]:
    before = state_of(learner)
    yield
    assert_same(state_of(learner), before)


def n_lines(variant: str, n_before: int, batch: tuple[Any, ...]) -> int:
    counter = AtLine()
    learner = taught(variant, n_before)
    counter.run(learner.observe, *batch)
    return counter.count


@pytest.mark.parametrize("n_before", [0, N_BEFORE, 8], ids=["first batch", "inside a task", "new task, new classes"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_error_at_any_line_leaves_every_bit_as_it_was(variant: str, n_before: int):
    batch = BATCHES[n_before]
    lines = n_lines(variant, n_before, batch)
    learner, never_interrupted = taught(variant, n_before), taught(variant, n_before)
    torch.manual_seed(2)
    before = state_of(learner)
    rng = torch.Generator().manual_seed(sum(map(ord, variant)))
    points = torch.randint(1, lines + 1, (N_POINTS,), generator=rng).tolist()
    for i, point in enumerate(points):
        injected = AtLine(point, KeyboardInterrupt if i % 2 else MemoryError)
        if injected.run(learner.observe, *batch) and learner.n_observed == n_before:
            assert_same(state_of(learner), before, injected.where)
            continue
        # After its last line of work a batch is learned, whatever is raised then. And a line may not come again.
        assert injected.where == "" or "transactions.py" in injected.where, injected.where
        learner = taught(variant, n_before)
        torch.manual_seed(2)
    for each in (learner, never_interrupted):
        torch.manual_seed(2)
        for x, y, task in [batch, *BATCHES[n_before + 1 : n_before + 3]]:
            each.observe(x, y, task)
    assert_same(state_of(learner), state_of(never_interrupted))
    assert torch.equal(learner.scores(BATCHES[0][0]), never_interrupted.scores(BATCHES[0][0]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_learned_in_transactions_has_the_bits_of_what_is_learned_without(
    variant: str, monkeypatch: pytest.MonkeyPatch
):
    learner = taught(variant, 10)
    monkeypatch.setattr(Learner, "change", lambda _, action: action())
    assert_same(state_of(learner), state_of(taught(variant, 10)))


@pytest.mark.parametrize("variant", ["er", "drr", "scr", "er, average", "er, own network"])
def test_an_undoing_that_is_interrupted_is_finished_by_the_next_use(variant: str):
    batch = BATCHES[8]
    lines = n_lines(variant, 8, batch)
    learner = taught(variant, 8)
    before = state_of(learner)
    for point in range(lines // 3, lines, max(1, lines // 7)):
        injected = AtLine(point, again_in="undo.py", again_after=point % 9)
        if injected.run(learner.observe, *batch):
            assert_same(state_of(learner), before, injected.where)
            assert learner.method.model.head.n_classes == learner.method.model.seen.n_classes


class Faulty(nn.Module):
    """Raise in the forward or in the backward pass, or make numbers that are none, from some pass on."""

    def __init__(self, kind: str, norm: nn.Module) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(N_FEATURES, 6), norm, nn.Dropout(0.2))
        self.kind, self.armed, self.n_passes = kind, False, 0
        self.history: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.n_passes += 1
        self.history.append(len(x))
        out: Tensor = self.layers(x)
        if self.armed and self.kind == "forward" and self.training:
            raise RuntimeError("a fault of the network")
        if self.armed and self.kind != "forward" and out.requires_grad:
            out.register_hook(self._backward)
        return out

    def _backward(self, gradient: Tensor) -> Tensor:
        if self.kind == "backward":
            raise RuntimeError("a fault of the network")
        return torch.full_like(gradient, torch.nan if self.kind == "NaN" else torch.inf)


REPLAYING = [name for name in names("methods") if issubclass(find("methods", name), ReplayMethod)]
TRAINS = [name for name in names("methods") if name not in ("ncm", "slda", "analytic", "randumb", "knn", "hedge")]


@pytest.mark.parametrize("kind", ["forward", "backward", "NaN", "infinite"])
@pytest.mark.parametrize("method", TRAINS)
def test_a_network_that_fails_or_makes_no_numbers_leaves_the_learner_as_it_was(method: str, kind: str):
    # Batch statistics of one value, as mer would have them, are none.
    backbone, twin = (Faulty(kind, nn.LayerNorm(6) if method == "mer" else nn.BatchNorm1d(6)) for _ in range(2))
    learner, untroubled = taught(method, backbone=backbone), taught(method, backbone=twin)
    x, y, task = BATCHES[N_BEFORE]
    backbone.armed = True
    n_passes, history = backbone.n_passes, list(backbone.history)
    torch.manual_seed(3)
    with unchanged(learner), pytest.raises(RuntimeError if kind in ("forward", "backward") else Diverged):
        learner.observe(x, y, task)
    assert (backbone.n_passes, backbone.history) == (n_passes, history)
    backbone.armed = False
    for each in (learner, untroubled):
        torch.manual_seed(3)
        each.observe(x, y, task)
    assert_same(state_of(learner), state_of(untroubled))


@pytest.mark.parametrize(
    "method", [name for name in names("methods") if issubclass(find("methods", name), ReplayMethod)]
)
def test_a_selection_that_fails_after_it_has_stored_leaves_the_learner_as_it_was(method: str):
    learner = taught(method)
    update = learner.method.selection.update  # type: ignore[attr-defined]

    def failing(*arguments: Any) -> None:
        update(*arguments)
        raise RuntimeError("a fault of the selection")

    learner.method.selection.__dict__["update"] = failing  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="a fault of the selection"):
        learner.observe(*BATCHES[N_BEFORE])
    del learner.method.selection.__dict__["update"]  # type: ignore[attr-defined]
    untroubled = taught(method)
    assert_same(state_of(learner), state_of(untroubled))
    for each in (learner, untroubled):
        each.observe(*BATCHES[N_BEFORE])
    assert_same(state_of(learner), state_of(untroubled))


@dataclass(kw_only=True, eq=False)
class Diary(ReplayMethod):
    """Change all kinds of attributes in place, and weights without an optimiser, then fail if told to."""

    pages: list[Any] = field(default_factory=list)
    table: dict[str, list[Tensor]] = field(default_factory=dict)
    total: Tensor = field(default_factory=lambda: torch.zeros(3))
    rng: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(5))
    fails: bool = False

    def observe(self, batch: Batch) -> float:
        self.pages.append({"n": len(batch)})
        self.pages[0]["last"] = int(batch.y[-1])
        self.table.setdefault("sums", [torch.zeros(1)])[0] += batch.x.sum()
        self.total += torch.rand(3, generator=self.rng) + torch.rand(3)
        self.model.head.weight.data.mul_(0.9)
        self.model.eval()
        self.remember(batch)
        self.memory.rearranged += 1
        if self.fails:
            raise RuntimeError("a fault of the method")
        self.model.train()
        return 0.0

    def end_task(self, task: int) -> None:
        self.pages.append({"end": task})


def test_a_method_of_ones_own_may_change_anything_in_place():
    VARIANTS["diary"] = {"method": f"{Diary.__module__}:Diary"}
    learner, untroubled = taught("diary"), taught("diary")
    learner.method.fails = True  # type: ignore[attr-defined]
    torch.manual_seed(4)
    with unchanged(learner), pytest.raises(RuntimeError, match="a fault of the method"):
        learner.observe(*BATCHES[8])
    learner.method.fails = False  # type: ignore[attr-defined]
    for each in (learner, untroubled):
        torch.manual_seed(4)
        each.observe(*BATCHES[8])
    assert_same(state_of(learner), state_of(untroubled))


def test_a_watcher_that_fails_leaves_the_learner_as_it_was():
    learner = taught("er")
    seen = []

    def watcher(watched: Learner) -> None:
        seen.append((watched.n_observed, watched.predict(BATCHES[0][0]).shape))
        if len(seen) == 2:
            raise KeyboardInterrupt

    learner.watch(watcher)
    learner.observe(*BATCHES[6])
    with unchanged(learner), pytest.raises(KeyboardInterrupt):
        learner.observe(*BATCHES[7])
    learner.observe(*BATCHES[7])
    assert [n for n, _ in seen] == [7, 8, 8]


def test_a_watcher_that_observes_is_refused_and_changes_nothing():
    learner = taught("er")
    learner.watch(lambda watched: watched.observe(*BATCHES[7]) and None)
    with unchanged(learner), pytest.raises(RuntimeError, match="inside another one"):
        learner.observe(*BATCHES[6])


@pytest.mark.parametrize("change", ["announce", "end_task", "load_state_dict", "merge", "forget"])
@pytest.mark.parametrize("variant", ["drr", "ewc", "slda", "er, own network"])
def test_other_changes_are_whole_too(variant: str, change: str):
    if change in ("merge", "forget") and variant != "slda":
        pytest.skip("what it has learned is no sum")
    earlier = compact(taught(variant, 3).state_dict())
    x, y, _ = BATCHES[0]

    def action(learner: Learner) -> Any:
        given: dict[str, tuple[Any, ...]] = {"announce": ([7, 8], 3), "end_task": (), "load_state_dict": (earlier,)}
        given |= {"merge": (taught(variant, 2),), "forget": (x[:3], y[:3])}
        return getattr(learner, change)(*given[change])

    counter = AtLine()
    counter.run(action, taught(variant))
    learner = taught(variant)
    before = state_of(learner)
    for point in range(counter.count - 40, counter.count, 5):
        injected = AtLine(point, MemoryError)
        if not injected.run(action, learner) or "transactions.py" in injected.where:
            learner = taught(variant)  # done, perhaps with an error after its last line of work
            continue
        torch.set_rng_state(before["rng"])
        assert_same(state_of(learner), before, injected.where)


@pytest.mark.parametrize("undone", [True, False], ids=["growth is undone", "the head grows later"])
def test_a_learner_goes_on_while_the_error_of_a_step_is_kept(undone: bool, monkeypatch: pytest.MonkeyPatch):
    """The traceback of an error holds the graph of the step, and in it the former shape of the head."""
    learner, control = (Learner("er", n_classes=None, lr=0.1, input_shape=(3,)) for _ in range(2))
    x, kept = torch.eye(3), []

    def fail(_: Any, loss: Tensor) -> float:
        raise MemoryError(loss)

    for each in (learner, control):
        each.observe(x, [0, 1, 0])
    with monkeypatch.context() as patch:
        patch.setattr(type(learner.method), "backward", fail)
        with pytest.raises(MemoryError) as caught:
            learner.observe(x, [0, 1, 3 if undone else 1])
        kept.append(caught.value)
    for y in ([0, 1, 1], [2, 3, 1]):
        for each in (learner, control):
            each.observe(x, y)
    assert kept
    assert_same(learner.state_dict(), control.state_dict())


@pytest.mark.parametrize("change", ["label", "wait"])
def test_labels_that_come_late_are_learned_as_a_whole_too(change: str):
    x = torch.eye(3)

    def made() -> Learner:
        learner = Learner("finetune", input_shape=(3,), waiting=4)
        learner.observe(x, [0, 1, 0])
        learner.wait(["a", "b", "c"], x)
        return learner

    def act(learner: Learner) -> None:
        if change == "label":
            learner.label(["a", "c"], [1, 2])
        else:
            learner.wait(["b", "d", "e"], x)

    counted, done = AtLine(), made()
    counted.run(act, done)
    expected = {checksum_of(each.state_dict()) for each in (made(), done)}
    for n in range(1, counted.count + 1):
        learner = made()
        AtLine(n).run(act, learner)
        assert checksum_of(learner.state_dict()) in expected
