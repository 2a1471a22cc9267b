"""Saved learners that someone made to do harm: refused by name, before anything of a size that they state is made."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from holdfast import Learner, load_learner
from holdfast.core.checkpoint import CorruptCheckpoint, write_checkpoint
from holdfast.core.state import restore_generator
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import CHECKPOINT, run
from holdfast.parts import Unknown
from holdfast.settings import Part
from tests.support.largest import Largest
from tests.support.same import assert_same
from tests.support.toy import Toy

State = dict[str, Any]
N_INPUTS = 4
X = torch.linspace(0, 1, 12).reshape(3, N_INPUTS)


def learned(method: Any = "er", *, n_batches: int = 5, **options: Any) -> Learner:
    learner = Learner(method, **{"backbone": {"name": "mlp", "hidden": [5]}, "memory": 12} | options)
    for i in range(n_batches):
        x = torch.rand(4, N_INPUTS, generator=torch.Generator().manual_seed(i))
        task = None if learner.settings.setting == "free" else i // 2
        learner.observe(x, [i % 5, (i + 1) % 5, 0, i % 5], task)
    return learner


def state_of(learner: Learner) -> State:
    return copy.deepcopy(learner.state_dict())


def put(state: State, place: str, value: Any) -> None:
    *steps, last = place.split("/")
    for step in steps:
        state = state[step]
    state[last] = value(state[last]) if isinstance(value, Callable) else value


def loaded(state: State, folder: Path, **options: Any) -> Learner:
    """The learner of a file with this state and a right checksum; no tensor made is larger than a few of the file's."""
    write_checkpoint(folder / "learner", state)
    with Largest() as made:
        try:
            return load_learner(folder / "learner", **options)
        finally:
            assert made.nbytes <= 4 * (folder / "learner").stat().st_size + 100_000


# Sizes that nothing in the file bears out.


def test_a_projector_is_not_made_for_a_file_that_does_not_hold_it(tmp_path: Path):
    state = state_of(learned("scr", backbone={"name": "mlp", "hidden": [5000]}, n_batches=0, input_shape=[N_INPUTS]))
    state["method"]["projector"] = {name: torch.zeros(1) for name in state["method"]["projector"]}
    with pytest.raises(CorruptCheckpoint, match="the saved projector is not one of these features"):
        loaded(state, tmp_path)


@pytest.mark.parametrize("method", ["ewc", "rwalk", "mas", "si"])
def test_importances_are_not_made_for_a_file_that_does_not_hold_them(tmp_path: Path, method: str):
    state = state_of(learned(method, recover=False, backbone={"name": "mlp", "hidden": [20_000]}))
    state["method"]["importance"] = []
    with pytest.raises(CorruptCheckpoint, match="importance is not one tensor for each parameter"):
        loaded(state, tmp_path)


def test_many_layers_are_refused_before_one_is_made(tmp_path: Path):
    state = state_of(learned())
    put(state, "settings/backbone/hidden", [1] * 200_000)
    with pytest.raises(CorruptCheckpoint, match=r"hidden: .* at most 256 items"):
        loaded(state, tmp_path)


@pytest.mark.parametrize("hidden", [[], [0], [10**9], [1] * 257], ids=str)
def test_absurd_layers_are_a_clear_error_for_a_user_too(hidden: list[int]):
    with pytest.raises(Unknown, match=r"mlp\.hidden: .* should (be|have) (greater|less|at least|at most)"):
        Learner(backbone={"name": "mlp", "hidden": hidden}, input_shape=[N_INPUTS])


@pytest.mark.parametrize("memory", [10**6, "100 MB"])
def test_a_large_memory_is_as_large_as_what_is_stored_until_more_comes(tmp_path: Path, memory: int | str):
    original = learned(memory=memory)
    learner = loaded(state_of(original), tmp_path)
    assert learner.memory.capacity == original.memory.capacity >= 10**6
    assert learner.memory.nbytes == original.memory.nbytes
    for _ in range(10):
        for each in (learner, original):
            each.observe(X, [0, 1, 2])
    assert_same(learner.state_dict(), original.state_dict())
    assert len(learner.memory.columns["x"]) < 200


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("settings/memory", 10**12),
        ("settings/n_classes", 10**9),
        ("settings/seed", 10**400),
        ("method/steps_per_batch", 0),
        ("method/replay_size", -1),
        ("method/average", 2.0),
        ("method/memory/beside", 10**400),
        ("method/memory/rearranged", -1),
        ("method/memory/filled", True),
        ("method/selection/offered", 10**400),
        ("method/selection/offered", 0.5),
        ("method/selection/offered", None),
        ("n_observed", -1),
        ("n_observed", 10**400),
        ("running_task", 3),
        ("scale", float("nan")),
        ("mean", float("inf")),
        ("mean", torch.full((N_INPUTS,), float("nan"))),
        ("mean", torch.zeros(3, 1, N_INPUTS)),
        ("input_shape", (0,)),
        ("input_shape", (10**400,)),
        ("input_dtype", None),
        ("method", None),
    ],
)
def test_a_number_out_of_its_range_is_refused(tmp_path: Path, place: str, value: Any):
    state = state_of(learned())
    if place == "settings/memory":
        put(state, "method/memory/max_samples", value)
    put(state, place, value)
    with pytest.raises(CorruptCheckpoint):
        loaded(state, tmp_path)


# Parts that have to fit together.


def first(change: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    def changed(tensor: Tensor) -> Tensor:
        change(tensor)
        return tensor

    return changed


def fill(value: Any) -> Callable[[Tensor], Tensor]:
    return first(lambda tensor: tensor.view(-1)[:1].fill_(value))


MEMORY = "method/memory/columns"
HEAD = "method/model/head.weight"
HOLDING = {"score_distillation": 1.0, "setting": "class"}
UNFIT: list[tuple[str, dict[str, Any], str, Any]] = [
    ("er", {}, f"{MEMORY}/y", lambda y: y.double()),
    ("er", {}, f"{MEMORY}/y", lambda y: y[:, None]),
    ("er", {}, f"{MEMORY}/y", fill(-1)),
    ("er", {}, f"{MEMORY}/y", fill(5)),
    ("er", {}, f"{MEMORY}/y", fill(2**62)),
    ("er", {}, f"{MEMORY}/task", fill(0)),
    ("er", {}, f"{MEMORY}/task", lambda task: task[:-1]),
    ("er", {}, f"{MEMORY}/x", fill(float("nan"))),
    ("er", {}, f"{MEMORY}/x", lambda x: x.double()),
    ("er", {}, f"{MEMORY}/x", lambda x: x.to(torch.complex64)),
    ("er", {}, f"{MEMORY}/x", lambda x: x[:, :-1]),
    ("er", {}, MEMORY, lambda columns: columns | {"extra.surprise": columns["y"]}),
    ("er", {}, MEMORY, lambda columns: columns | {"surprise": columns["y"]}),
    ("er", {"setting": "task"}, f"{MEMORY}/task", fill(7)),
    ("er", {"setting": "class"}, f"{MEMORY}/task", fill(-1)),
    ("er", {}, HEAD, fill(float("nan"))),
    ("er", {}, HEAD, lambda weight: weight.to(torch.int64)),
    ("er", {}, HEAD, lambda weight: weight[:, :-1]),
    ("er", {}, "method/model/head.bias", lambda bias: bias[:-1]),
    ("er", {}, "method/model/_extra_state/rng", lambda rng: rng[:-1]),
    ("er", {}, "method/memory/rng", lambda rng: rng.to(torch.int64)),
    ("er", {"momentum": 0.9}, "method/optimizer/param_groups", lambda groups: [groups[0] | {"lr": float("nan")}]),
    ("er", {"momentum": 0.9}, "method/optimizer/state", lambda state: {-1: state[0]}),
    ("er", {"momentum": 0.9}, "method/optimizer/state", lambda state: {9: state[0]}),
    ("er", {"optimizer": "adam"}, "method/optimizer/param_groups", lambda groups: [groups[0] | {"amsgrad": True}]),
    ("er", {"optimizer": "adam"}, "method/optimizer/param_groups", lambda groups: [groups[0] | {"betas": (2.0, 0.9)}]),
    ("er", {"optimizer": "adam"}, "method/optimizer/state", lambda state: {0: state[1]}),
    ("er", {"average": 0.9}, "method/weight_average/tensors", lambda tensors: tensors[:-1]),
    ("er", {"average": 0.9}, "method/weight_average/tensors", lambda tensors: tensors[::-1]),
    ("er", {"average": 0.9}, "method/weight_average/n_updates", -20),
    ("er", {"selection": "ring"}, "method/selection/slots_by_key", lambda slots: {key: [99] for key in slots}),
    ("er", {"selection": "ring"}, "method/selection/slots_by_key", {}),
    ("er", {"selection": "ring"}, "method/selection/slots_by_key", {"a": [0]}),
    ("er", {"selection": "gradient_diversity"}, f"{MEMORY}/extra.similarity", fill(3.0)),
    ("er", {"selection": "mean_of_features"}, "method/selection/means", {}),
    ("er", {"selection": "mean_of_features"}, "method/selection/seen", lambda seen: dict.fromkeys(seen, 0)),
    ("er", {"selection": "mean_of_features"}, "method/selection/means", lambda m: dict.fromkeys(m, torch.zeros(3))),
    ("er", {"selection": "centroid"}, "method/selection/counts", lambda counts: {k: [-1] for k in counts}),
    ("er", {"selection": "centroid"}, "method/selection/counts", lambda counts: {k: [1] * 99 for k in counts}),
    ("er", {"selection": "centroid"}, "method/selection/centres", lambda c: {(*k, 0): c[k] for k in c}),
    ("er", {"selection": "centroid"}, f"{MEMORY}/extra.centroid", fill(50)),
    ("er", {"selection": "centroid"}, f"{MEMORY}/extra.feature", lambda feature: feature[:, :-1]),
    ("der", {}, f"{MEMORY}/extra.n_units", fill(9)),
    ("der", {}, f"{MEMORY}/extra.logits", lambda logits: logits.repeat(1, 2)),
    ("der", {}, MEMORY, lambda columns: {n: c for n, c in columns.items() if n != "extra.n_units"}),
    ("drr", {"setting": "class"}, "method/task_of_class", {9: 0}),
    ("drr", {"setting": "class"}, "method/task_of_class", {}),
    ("drr_plus", HOLDING, "method/last_groups", lambda groups: groups.repeat(1, 9)),
    ("drr_plus", HOLDING, "method/last_end/tensors", lambda t: t[:2]),
    ("scr", {"projection": 6}, "method/projection", 7),
    ("ewc", {}, "method/fisher", lambda fisher: fisher[:-1]),
    ("ewc", {}, "method/anchor", lambda anchor: [part[None] for part in anchor]),
    ("mas", {"consolidate_every": 9}, "method/n_measured", 0),
    ("rwalk", {}, "method/n_consolidated", 10**400),
]


@pytest.mark.parametrize(("method", "options", "place", "value"), UNFIT)
def test_parts_that_do_not_fit_together_are_refused(
    tmp_path: Path, method: str, options: State, place: str, value: Any
):
    state = state_of(learned(method, **options))
    assert_same(loaded(copy.deepcopy(state), tmp_path).state_dict(), state)
    put(state, place, value)
    with pytest.raises(CorruptCheckpoint, match="learner is not the state of a learner: "):
        loaded(state, tmp_path)


def test_a_generator_that_would_read_beyond_its_numbers_is_refused():
    generator = torch.Generator().manual_seed(3)
    torch.rand(5, generator=generator)
    whole = generator.get_state()
    broken = whole.clone()
    broken[8:12] = torch.tensor(list(struct.pack("<i", 600)), dtype=torch.uint8)  # left, while 5 are taken
    with pytest.raises(ValueError, match="600 numbers left and 5 taken"):
        restore_generator(generator, broken)
    for n in (0, 1, 618, 619, 700):  # up to the last of the 624 that are made at once, and beyond
        torch.rand(n, generator=generator)
        restore_generator(torch.Generator(), generator.get_state())


def test_an_option_that_was_changed_while_learning_is_kept(tmp_path: Path):
    learner = learned()
    learner.method.replay_size = 7
    assert loaded(state_of(learner), tmp_path).method.replay_size == 7


def test_a_backbone_of_ones_own_with_other_features_than_the_head_is_refused(tmp_path: Path):
    state = state_of(learned(backbone=nn.Linear(N_INPUTS, 6)))
    put(state, HEAD, lambda weight: weight[:, :-1])
    with pytest.raises(CorruptCheckpoint, match="head"):
        loaded(state, tmp_path, backbone=nn.Linear(N_INPUTS, 6))


def test_a_learner_that_a_refused_state_was_given_to_is_as_it_was():
    learner = learned()
    before, broken = state_of(learner), state_of(learned(n_batches=7))
    broken["method"]["memory"]["columns"]["y"][0] = -1
    with pytest.raises(ValueError, match="the saved memory is not whole"):
        learner.load_state_dict(broken)
    assert_same(learner.state_dict(), before)


# The checkpoint of a run.


def test_the_learner_of_a_run_is_loaded_from_its_checkpoint_or_its_folder(tmp_path: Path):
    experiment = Experiment(stream=Part(name=f"{Toy.__module__}:Toy"), method="er", setting="task", memory=20)
    store = ResultStore(tmp_path)
    result = run(experiment, store)
    test = Toy(seed=experiment.seed)[1].test[:]
    for path in (store.folder(experiment), store.folder(experiment) / CHECKPOINT):
        learner = load_learner(path)
        right = (learner.predict(test.x, 1) == test.y).double().mean().item()
        assert right == result.accuracies[-1][1]


def test_a_folder_without_a_checkpoint_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=CHECKPOINT):
        load_learner(tmp_path)
