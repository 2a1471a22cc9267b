"""Contracts of a selection and of a retrieval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.checks._base import Check, expect
from holdfast.checks.methods import check_batches_of_one, check_learned, check_saving
from holdfast.checks.same import assert_same
from holdfast.checks.toy import toy_batches, toy_learner
from holdfast.core.batch import Batch
from holdfast.core.classes import SETTINGS
from holdfast.learner import Learner
from holdfast.memory.storage import Memory
from holdfast.methods._base import ReplayMethod
from holdfast.settings import Part

CAPACITY = 30
BUDGET = 2000  # bytes
ENOUGH = 0.7


def selection_checks(selection: Part, settings: dict[str, Any]) -> Iterator[Check]:
    """Yield the checks of a selection; `settings` of the learner take the place of those that the checks take."""
    for stated in _in_each_setting({"selection": selection.model_dump(), **settings}):
        name = stated["setting"]
        yield Check(
            f"memory holds samples of the stream and no more than it may ({name})", _apart(check_content, stated)
        )
        yield Check(f"a budget in bytes is kept ({name})", _apart(check_budget, stated))
        yield Check(f"a saved learner continues with the same bits ({name})", _learning(stated))
        yield Check(f"batches of one sample are taken ({name})", _apart(check_batches_of_one, stated))
        yield Check(f"torch's own random numbers decide nothing ({name})", _apart(check_random_numbers, stated))


def retrieval_checks(retrieval: Part, settings: dict[str, Any]) -> Iterator[Check]:
    """Yield the checks of a retrieval; `settings` of the learner take the place of those that the checks take."""
    for stated in _in_each_setting({"retrieval": retrieval.model_dump(), **settings}):
        name = stated["setting"]
        yield Check(f"it picks stored samples, at most as many as asked for ({name})", _apart(check_picked, stated))
        yield Check(f"picking changes nothing that is stored ({name})", _apart(check_picking, stated))
        yield Check(f"a saved learner continues with the same bits ({name})", _learning(stated))
        yield Check(f"batches of one sample are taken ({name})", _apart(check_batches_of_one, stated))
        yield Check(f"torch's own random numbers decide nothing ({name})", _apart(check_random_numbers, stated))


def check_content(settings: dict[str, Any]) -> None:
    """Check that memory holds samples that came, as they came, and never more than its capacity."""
    learner = toy_learner(settings)
    came: set[bytes] = set()
    for x, y, task in toy_batches(settings["setting"]):
        came |= _keys(x, y, torch.full_like(y, -1 if task is None else task))
        learner.observe(x, y, task)
        memory = memory_of(learner)
        n = len(memory)
        expect(n <= CAPACITY, f"memory holds {n} samples, and may hold {CAPACITY}")
        if n:
            expect(
                _keys(memory.x, memory.y, memory.task) <= came, "a stored sample, or its label, never came like that"
            )
    expect(n > 0, "nothing was stored: update is to add samples to memory")


def check_budget(settings: dict[str, Any]) -> None:
    """Check that a memory in bytes, with what the selection keeps for each slot, stays within its budget."""
    learner = toy_learner({**settings, "memory": f"{BUDGET} B"})
    for x, y, task in toy_batches(settings["setting"])[::2]:
        learner.observe(x, y, task)
        memory = memory_of(learner)
        used = memory.nbytes + memory.capacity * memory.beside
        expect(used <= BUDGET, f"memory takes {used} bytes, and may take {BUDGET}")


def check_random_numbers(settings: dict[str, Any]) -> None:
    """Check that two learners of one seed store and replay the same, whatever torch's global generator says."""
    states = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            learner = toy_learner(settings)
            for x, y, task in toy_batches(settings["setting"])[::2]:
                learner.observe(x, y, task)
        states.append(learner.state_dict())
    assert_same(states[0], states[1])


def check_picked(settings: dict[str, Any]) -> None:
    """Check that a retrieval returns samples that are stored."""
    learner, batch = _before_a_batch(settings)
    memory, method = memory_of(learner), _replaying(learner)
    stored = _keys(memory.x, memory.y, memory.task)
    for size in (1, 7, 1000):
        picked = method.retrieval.pick(memory, size, batch, method.model)
        expect(len(picked) <= size, f"{len(picked)} samples were picked, and {size} asked for")
        expect(
            _keys(picked.x, picked.y, picked.task) <= stored, "a picked sample, or its label, is not stored like that"
        )


def check_picking(settings: dict[str, Any]) -> None:
    """Check that a retrieval draws from the generator of memory, and changes neither samples nor the model."""
    learner, batch = _before_a_batch(settings)
    memory, method = memory_of(learner), _replaying(learner)
    before = memory[:]
    weights = {name: tensor.clone() for name, tensor in method.model.state_dict().items() if isinstance(tensor, Tensor)}
    method.retrieval.pick(memory, 7, batch, method.model)
    after = memory[:]
    assert_same([after.x, after.y, after.task, after.extra], [before.x, before.y, before.task, before.extra], "memory")
    model = {name: tensor for name, tensor in method.model.state_dict().items() if isinstance(tensor, Tensor)}
    assert_same(model, weights, "model")


def memory_of(learner: Learner) -> Memory:
    """Return the memory of a learner that has one."""
    return _replaying(learner).memory


def _replaying(learner: Learner) -> ReplayMethod:
    method = learner.method
    expect(isinstance(method, ReplayMethod), "the method has no memory: check with a replay method")
    assert isinstance(method, ReplayMethod)
    return method


def _before_a_batch(settings: dict[str, Any]) -> tuple[Learner, Batch]:
    """Return a learner of the first two tasks, and a batch of the third."""
    learner = toy_learner(settings)
    batches = toy_batches(settings["setting"])
    for x, y, task in batches[:24]:
        learner.observe(x, y, task)
    x, y, task = batches[24]
    return learner, Batch(x, y, torch.full_like(y, -1 if task is None else task))


def _in_each_setting(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usual = {"method": "er", "backbone": {"name": "mlp", "hidden": [16]}, "memory": CAPACITY, "lr": 0.05}
    for setting in [settings["setting"]] if "setting" in settings else SETTINGS:
        yield {**usual, **settings, "setting": setting}


def _keys(x: Tensor, y: Tensor, task: Tensor) -> set[bytes]:
    """Return the bytes of each sample with its label and its task."""
    rows = x.flatten(1).contiguous()
    return {
        row.numpy().tobytes() + f"|{label}|{number}".encode()
        for row, label, number in zip(rows, y.tolist(), task.tolist(), strict=True)
    }


def _learning(settings: dict[str, Any]) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        check_learned(check_saving(settings, folder), settings, at_least=ENOUGH)

    return check


def _apart(function: Callable[[dict[str, Any]], None], settings: dict[str, Any]) -> Callable[[Path], None]:
    return lambda _: function(settings)
