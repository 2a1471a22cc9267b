import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from holdfast.core.state import Stateful
from tests.support.same import assert_same
from tests.support.trees import compact, plain_values, tensors, trees


class Counter(Stateful):
    def __init__(self, count: int) -> None:
        self.count = count


class Everything(Stateful):
    """Every kind of attribute, each with something in it that depends on `seed`."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.nothing = None
        self.flag = seed % 2 == 0
        self.number = seed
        self.ratio = seed / 3
        self.text = f"seed {seed}"
        self.tensor = torch.rand(2, generator=generator)
        self.nested = {1: [seed, (self.tensor + 1, None)], (0, seed): {"deep": -seed}}
        self.generator = generator
        self.module = nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1 * seed, momentum=0.5)
        self.inner = Counter(seed)

    def learn(self) -> None:
        """Change the module, the optimiser's momentum and the generator."""
        self.optimizer.zero_grad()
        self.module(torch.rand(1, 2, generator=self.generator)).sum().backward()
        self.optimizer.step()


class Holder(Stateful):
    def __init__(self, value: Any) -> None:
        self.value = value


def test_every_kind_of_attribute_is_saved_and_restored():
    saved, restored = Everything(1), Everything(2)
    saved.learn()
    restored.load_state_dict(saved.state_dict())
    assert set(saved.state_dict()) == set(vars(saved))
    assert_same(restored.state_dict(), saved.state_dict())


def test_a_restored_object_goes_on_like_the_saved_one():
    saved, restored = Everything(1), Everything(2)
    saved.learn()
    restored.load_state_dict(copy.deepcopy(saved.state_dict()))
    saved.learn()
    restored.learn()
    assert_same(restored.state_dict(), saved.state_dict())


def test_objects_are_restored_in_place():
    restored = Everything(2)
    kept = {name: getattr(restored, name) for name in ("generator", "module", "optimizer", "inner")}
    weight = restored.module.weight
    restored.load_state_dict(Everything(1).state_dict())
    assert all(getattr(restored, name) is value for name, value in kept.items())
    assert restored.optimizer.param_groups[0]["params"][0] is restored.module.weight is weight


def test_what_is_restored_shares_no_memory_with_what_was_saved():
    saved, restored = Everything(1), Everything(2)
    saved.learn()
    restored.load_state_dict(saved.state_dict())
    before = copy.deepcopy(saved.state_dict())
    restored.learn()
    restored.tensor += 1
    restored.nested[1].append(0)
    restored.nested[1][1][0].zero_()
    assert_same(saved.state_dict(), before)


@settings(max_examples=50, deadline=None)
@given(trees(plain_values | tensors()))
def test_any_tree_of_plain_values_and_tensors_comes_back_as_it_was(tree: Any):
    restored = Holder({} if isinstance(tree, dict) else None)
    restored.load_state_dict(Holder(tree).state_dict())
    assert_same(compact(restored.value), compact(tree))


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({1, 2}, "Holder.value is a set"),
        (object(), "Holder.value is a object"),
        (np.zeros(2), "Holder.value is a ndarray"),
        (len, "Holder.value is a builtin_function_or_method"),
        (torch.float32, "Holder.value is a dtype"),
        ([0, torch.Generator()], r"Holder.value\[1\] is a Generator"),
        ({"a": (0, Counter(1))}, r"Holder.value\['a'\]\[1\] is a Counter"),
        (Holder({3: b"bytes"}), r"Holder.value\[3\] is a bytes"),
    ],
)
def test_what_cannot_be_saved_raises_and_is_named(value: Any, place: str):
    with pytest.raises(TypeError, match=place):
        Holder(value).state_dict()


def test_a_key_that_cannot_be_saved_raises_and_is_named():
    with pytest.raises(TypeError, match=r"Holder\.value"):
        Holder({frozenset([1]): 0}).state_dict()


def test_an_object_is_not_restored_as_a_heap_of_its_attributes():
    with pytest.raises((TypeError, ValueError), match="value"):
        Holder(None).load_state_dict(Holder(Counter(1)).state_dict())


def test_a_foreign_state_is_refused_with_what_is_missing_and_what_is_unknown():
    counter = Counter(1)
    with pytest.raises(ValueError, match=r"not of this Counter: missing \['count'\], unknown \['value'\]"):
        counter.load_state_dict(Holder(5).state_dict())
    assert counter.count == 1


def test_an_attribute_more_or_less_makes_a_state_foreign():
    with pytest.raises(ValueError, match=r"missing \['count'\], unknown \[\]"):
        Counter(1).load_state_dict({})
    with pytest.raises(ValueError, match=r"missing \[\], unknown \['other'\]"):
        Counter(1).load_state_dict({"count": 2, "other": 3})


@dataclass(eq=False)
class Grown(Stateful):
    """What a later version has: one option more."""

    inner: Counter
    old: int = 1
    new: float = 0.5
    count: int = field(default_factory=int, init=False)


def test_an_option_that_came_later_stays_as_the_object_was_built_with_it():
    saved = Grown(Counter(3), old=7).state_dict()
    del saved["new"]
    restored = Grown(Counter(4), new=0.25)
    restored.load_state_dict(saved)
    assert (restored.old, restored.new, restored.inner.count) == (7, 0.25, 3)


@pytest.mark.parametrize("name", ["inner", "count"])
def test_nothing_but_an_option_may_be_missing(name: str):
    saved = Grown(Counter(3)).state_dict()
    del saved[name]
    with pytest.raises(ValueError, match=rf"missing \['{name}'\]"):
        Grown(Counter(4)).load_state_dict(saved)


@dataclass(eq=False)
class Remembering(Stateful):
    """Keeps what it has worked out until its numbers change."""

    derived: ClassVar[frozenset[str]] = frozenset({"total", "parts"})

    numbers: list[int]
    total: int | None = field(default=None, init=False)
    parts: list[int] = field(default_factory=list, init=False)


def test_what_was_worked_out_before_is_worked_out_anew_after_a_state_is_loaded():
    used = Remembering([1, 2])
    used.total, parts = 3, used.parts
    parts.append(1)
    assert set(used.state_dict()) == {"numbers"}
    used.load_state_dict(Remembering([5]).state_dict())
    assert (used.numbers, used.total, used.parts) == ([5], None, [])
