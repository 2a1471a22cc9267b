"""Saved learners and runs, changed in one to three places and signed anew: each is refused by name, or goes on."""

from __future__ import annotations

import contextlib
import copy
import math
import random
import resource
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast import Learner, load_learner
from holdfast.core.checkpoint import CHECKPOINT, previous_checkpoint, read_checkpoint, write_checkpoint
from holdfast.core.classes import Setting
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import Refused, ResultStore
from holdfast.experiments.run import Interrupted, run
from holdfast.methods._base import Diverged
from holdfast.settings import Part
from holdfast.tables import TableLearner, load_table_learner
from tests.support.largest import Largest
from tests.support.learners import LEARNERS, N_INPUTS
from tests.support.tries import tries

FREE_BYTES = 300_000  # that one tensor may have whatever the size of the file

SETTINGS: tuple[Setting, ...] = ("task", "class", "domain", "free")


def inputs(n: int, seed: int) -> Tensor:
    return torch.rand(n, N_INPUTS, generator=torch.Generator().manual_seed(seed))


def taught(learner: Learner, n_batches: int, start: int = 0) -> Learner:
    for i in range(start, start + n_batches):
        task = None if learner.settings.setting == "free" else i // 2
        learner.observe(inputs(4, i), [i % 5, (i + 1) % 5, 0, i % 5], task)
    return learner


@cache
def saved(name: str, setting: Setting, n_batches: int) -> dict[str, Any]:
    options = {"backbone": {"name": "mlp", "hidden": [5]}, "memory": 12} | LEARNERS[name]
    return taught(Learner(**options, setting=setting), n_batches).state_dict()


# Changes.

NUMBERS = [
    *(-(10**400), -(2**63), -1, 0, 1, 2, 3, 7, 257, 10**6, 10**9, 10**12, 2**31, 2**53 + 1, 2**62, 2**63, 10**400),
    *(True, False, -0.0, 0.5, 1.0, 1e-320, 1e30, 1e300, -0.5, math.nan, math.inf, -math.inf),
]
TEXTS = [
    "",
    "cpu",
    "cuda",
    "cuda:99",
    "meta",
    "é" * 3,
    "x" * 10_000,
    "er",
    "task",
    "free",
    "os:system",
    "\0",
    "1 TB",
    "5 MB",
]
DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32),
    *(torch.float64, torch.complex64, torch.float8_e4m3fn, torch.uint16, torch.uint64),
]


def any_tensor(rng: random.Random) -> Tensor:
    shape = rng.choice([(), (0,), (1,), (3,), (5,), (0, 5), (2, 3), (5, 4), (1, 1, 1), (2, 0), (5056,), (20_000,)])
    return torch.zeros(shape).to(rng.choice(DTYPES))


def anything(rng: random.Random) -> Any:
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice(TEXTS)
    if kind == 2:
        return any_tensor(rng)
    return rng.choice([None, [], {}, (), [1] * 2000, [[]], [None], (0, 0), {(0, 0): [0]}, {0: {}}, nested(200)])


def nested(depth: int) -> Any:
    tree: Any = []
    for _ in range(depth):
        tree = [tree]
    return tree


def changed_tensor(tensor: Tensor, rng: random.Random) -> Any:
    tensor = tensor.clone()
    kind = rng.randrange(9)
    if kind == 0:
        return tensor.to(rng.choice(DTYPES))
    if kind == 1:
        return tensor[: rng.randrange(3)] if tensor.ndim else tensor[None]
    if kind == 2:
        return torch.cat([tensor] * rng.choice([2, 3, 50])) if tensor.ndim else tensor
    if kind == 3:
        return tensor[None] if rng.random() < 0.5 else tensor.flatten()
    if kind == 4:
        return tensor.mT.contiguous() if tensor.ndim > 1 else tensor[..., None]
    if kind == 5:
        return any_tensor(rng)
    if tensor.numel():
        value = rng.choice(NUMBERS)
        place = rng.randrange(tensor.numel())
        try:
            flat = tensor.view(-1)
            flat[place if kind < 8 else slice(None)] = value
        except (RuntimeError, OverflowError, ValueError):
            pass
    return tensor


def changed_number(value: Any, rng: random.Random) -> Any:
    kind = rng.randrange(5)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind == 2:
        return value + rng.choice([-2, -1, 1, 2])
    return value * rng.choice([-1, 0, 2, 10**6, 0.5]) if kind == 3 else anything(rng)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a tree."""
    found = []
    branches: Any = ()
    if isinstance(tree, dict):
        branches = tree.items()
    elif isinstance(tree, list | tuple):
        branches = enumerate(tree)
    for key, value in branches:
        found.append((*path, key))
        found += places(value, (*path, key))
    return found


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def with_value(tree: Any, path: tuple[Any, ...], change: Callable[[Any, Any], Any]) -> Any:
    """The tree with its container at `path[:-1]` given to `change` with the last key; tuples are made anew."""
    if len(path) == 1:
        return change(tree, path[0])
    inner = with_value(tree[path[0]], path[1:], change)
    if isinstance(tree, tuple):
        return tuple(inner if i == path[0] else value for i, value in enumerate(tree))
    tree[path[0]] = inner
    return tree


def put(value: Any) -> Callable[[Any, Any], Any]:
    def change(tree: Any, key: Any) -> Any:
        if isinstance(tree, tuple):
            return tuple(value if i == key else each for i, each in enumerate(tree))
        tree[key] = value
        return tree

    return change


def delete(tree: Any, key: Any) -> Any:
    if isinstance(tree, tuple):
        return tuple(each for i, each in enumerate(tree) if i != key)
    del tree[key]
    return tree


def rename(rng: random.Random) -> Callable[[Any, Any], Any]:
    def change(tree: Any, key: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        value = tree.pop(key)
        key = tuple(k + rng.choice([-1, 1, 10**9]) for k in key) if isinstance(key, tuple) else rng.choice([0, "x", -1])
        tree[key] = value
        return tree

    return change


def double(tree: Any, key: Any) -> Any:
    if isinstance(tree, list):
        tree.insert(key, copy.deepcopy(tree[key]))
    elif isinstance(tree, tuple):
        tree = (*tree[:key], tree[key], *tree[key:])
    else:
        tree[(key, 0) if isinstance(key, int) else f"{key}2"] = copy.deepcopy(tree[key])
    return tree


def mutated(state: Any, rng: random.Random) -> tuple[Any, list[str]]:
    told = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        found = places(state)
        if not found:
            break
        path = rng.choice(found)
        if rng.random() < 0.7:  # at an end of the tree
            path = rng.choice([p for p in found if not isinstance(at(state, p), dict | list | tuple)] or [path])
        value = at(state, path)
        kind = rng.randrange(10)
        if kind == 0:
            change = delete
        elif kind == 1:
            change = double
        elif kind == 2:
            change = rename(rng)
        elif kind == 3:
            change = put(copy.deepcopy(at(state, rng.choice(found))))
        elif kind == 4:
            change = put(anything(rng))
        elif isinstance(value, Tensor):
            change = put(changed_tensor(value, rng))
        elif isinstance(value, bool | int | float):
            change = put(changed_number(value, rng))
        elif isinstance(value, str):
            change = put(rng.choice(TEXTS))
        else:
            change = put(anything(rng))
        try:
            state = with_value(state, path, change)
        except (TypeError, KeyError):  # a key that cannot be one
            continue
        told.append(f"{path}: {str(value)[:60]!r} by {kind}, now {str(at_or_none(state, path))[:60]!r}")
    return state, told


def at_or_none(tree: Any, path: tuple[Any, ...]) -> Any:
    try:
        return at(tree, path)
    except (LookupError, TypeError):
        return None


# Calls of a learner that was loaded.


def goes_on(learner: Learner) -> None:
    """It learns and predicts, unless the numbers that it was given run away."""
    shape, dtype = learner.input_shape or (N_INPUTS,), learner.input_dtype or torch.float32
    if math.prod(shape) > 10**5:
        return
    x = torch.ones(3, *shape).to(dtype)
    known = learner.settings.n_classes or 3
    try:
        if learner._method is not None and learner.method.model.seen.classes().numel():
            learner.predict(x, task_that_was_seen(learner))
        for i in range(2):
            task = None if learner.settings.setting == "free" else i
            learner.observe(x, [0, min(1, known - 1), min(2, known - 1)], task)
        learner.predict(x, 0 if learner.settings.setting == "task" else None)
    except Diverged:
        pass


def task_that_was_seen(learner: Learner) -> int | None:
    seen = learner.method.model.seen
    return next(i for i in range(10**6) if seen.knows_task(i)) if seen.predicts_by_task else None


def test_a_saved_learner_with_anything_changed_is_refused_by_name_or_goes_on(tmp_path: Path):
    path = tmp_path / "learner"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_loaded = 0
    for rng in tries(seed=1, at_least=80):
        name, setting = rng.choice(list(LEARNERS)), rng.choice(SETTINGS)
        state, told = mutated(copy.deepcopy(saved(name, setting, rng.choice([1, 5, 5]))), rng)
        try:
            write_checkpoint(path, state)
        except (TypeError, ValueError, OverflowError, AttributeError, RuntimeError):
            continue  # no such file can be written
        previous_checkpoint(path).unlink(missing_ok=True)
        allowed = 4 * path.stat().st_size + FREE_BYTES
        try:
            with warnings.catch_warnings(), Largest() as largest:
                warnings.simplefilter("ignore")  # of numbers that overflow
                try:
                    learner = load_learner(path)
                except ValueError:
                    continue
                finally:
                    assert largest.nbytes <= allowed, f"a tensor of {largest.nbytes:,} bytes was made"
                n_loaded += 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                goes_on(learner)
        except Exception as error:
            error.add_note(f"{name}, {setting}: {'; '.join(told)}")
            raise
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert n_loaded > 0
    assert grown < 400_000, f"loading took {grown:,} KB"


# The same for learners of tables, and for runs.

ROWS = [{"a": str(i / 3), "b": "red" if i % 2 else "blue", "c": "" if i == 3 else str(i)} for i in range(12)]
LABELS = [f"class {i % 3}" for i in range(12)]


@cache
def saved_table(folder: Path) -> dict[str, Any]:
    learner = TableLearner("label", memory=8, batch=4)
    learner.observe([{**row, "label": label} for row, label in zip(ROWS, LABELS, strict=True)])
    learner.save(folder / "whole")
    return read_checkpoint(folder / "whole")


def written(path: Path, state: Any) -> bool:
    """Write a state, and tell whether there can be such a file."""
    try:
        write_checkpoint(path, state)
    except (TypeError, ValueError, OverflowError, AttributeError, RuntimeError):
        return False
    previous_checkpoint(path).unlink(missing_ok=True)
    return True


def test_a_learner_of_a_table_with_anything_changed_is_refused_by_name_or_goes_on(tmp_path: Path):
    whole, path = saved_table(tmp_path), tmp_path / "learner"
    n_loaded = 0
    for rng in tries(seed=2, at_least=60):
        state, told = mutated(copy.deepcopy(whole), rng)
        if not written(path, state):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    learner = load_table_learner(path)
                except ValueError:
                    continue
                n_loaded += 1
                with contextlib.suppress(Diverged, ValueError):  # parts that do not fit each other are told when used
                    learner.predict(ROWS[:3])
                    learner.observe([{**ROWS[0], "label": "class 1"}, {**ROWS[1], "label": "new"}])
                    learner.predict(ROWS[:3])
        except Exception as error:
            error.add_note("; ".join(told))
            raise
    assert n_loaded > 0


TOY = {"stream.n_tasks": 2, "stream.samples_per_task": 20, "backbone.hidden": [4], "memory": 20}


@cache
def stopped_run(folder: Path) -> tuple[Experiment, dict[str, Any]]:
    """A run that was stopped in its second task, and its checkpoint."""
    experiment = load_recipe("permuted_digits").experiment("er", seed=1, changes=TOY)
    asked = iter(range(10))
    with pytest.raises(Interrupted):
        run(experiment, ResultStore(folder), probes=PROBES, stop=lambda: next(asked) == 3)
    return experiment, read_checkpoint(ResultStore(folder).folder(experiment) / CHECKPOINT)


PROBES = tuple(Part(name=name, options={"every": 1}) for name in ("curve", "prequential"))


def test_a_run_with_anything_changed_is_refused_by_name_or_goes_on(tmp_path: Path):
    experiment, whole = stopped_run(tmp_path)
    folder = ResultStore(tmp_path).folder(experiment)
    n_done = 0
    for rng in tries(seed=3, at_least=40):
        state, told = mutated(copy.deepcopy(whole), rng)
        if not written(folder / CHECKPOINT, state):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with contextlib.suppress(ValueError):
                    load_learner(folder)
                try:
                    run(experiment, ResultStore(tmp_path), probes=PROBES)
                except (ValueError, Refused, Diverged):
                    continue
            n_done += 1
            (folder / "result.json").unlink()
        except Exception as error:
            error.add_note("; ".join(told))
            raise
    assert n_done > 0
