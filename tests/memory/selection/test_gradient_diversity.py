from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.backbones._base import Backbone
from holdfast.backbones.mlp import Mlp
from holdfast.backbones.reduced_resnet18 import ReducedResnet18
from holdfast.core.batch import SIMILARITY, Batch
from holdfast.core.classes import Setting
from holdfast.core.model import HeadKind, Model
from holdfast.memory.selection.gradient_diversity import GradientDiversity, direction
from holdfast.memory.storage import Memory
from holdfast.parts import find, names
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model

OPTIONS = {"n_references": 3, "reference_size": 2}


def offer(selection: GradientDiversity, memory: Memory, batch: Batch, model: Model) -> None:
    batch = selection.with_extras(batch, model)
    memory.fit(batch)
    selection.update(memory, batch, model)


def copy_of(memory: Memory) -> Memory:
    copy = Memory(memory.capacity)
    copy.load_state_dict(memory.state_dict())
    return copy


def gradient_by_autograd(model: Model, batch: Batch) -> Tensor:
    """The gradient of a batch's loss, flat, with the model as when predicting."""
    was_training = model.training
    model.eval()
    found = torch.autograd.grad(model.loss(batch), list(model.parameters()))
    model.train(was_training)
    return torch.cat([part.flatten() for part in found])


def cosine(a: Tensor, b: Tensor) -> float:
    return float((a @ b) / (a.norm() * b.norm()))


def by_class(classes: list[int], *, seed: int) -> Batch:
    """Samples that look alike, whatever their class: only the class decides where their gradients point."""
    x = 1 + 0.3 * torch.randn(len(classes), 3, generator=torch.Generator().manual_seed(seed))
    return Batch(x, torch.tensor(classes), torch.zeros(len(classes), dtype=torch.int64))


# Directions of gradients.

backbones = pytest.mark.parametrize(
    ("make", "shape"),
    [
        (partial(Mlp, hidden=(6, 5)), (4,)),
        (partial(ReducedResnet18, width=8), (3, 8, 8)),
        (partial(ReducedResnet18, width=8, precision="bfloat16"), (3, 8, 8)),
    ],
    ids=["mlp", "reduced_resnet18", "bfloat16"],
)


def model_and_batch(
    make: Callable[[tuple[int, ...]], Backbone], shape: tuple[int, ...], setting: Setting, head: HeadKind = "linear"
) -> tuple[Model, Batch]:
    """A model that has seen two tasks of two classes each, and three samples."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = make(shape)
    model = Model(backbone, n_features=backbone.n_features, n_classes=5, setting=setting, head=head)
    for task in (0, 1):
        model.seen.announce([2 * task, 2 * task + 1], task)
    rng = torch.Generator().manual_seed(1)
    model.features(torch.randn(20, *shape, generator=rng))  # running averages other than at first
    return model, Batch(torch.randn(3, *shape, generator=rng), torch.tensor([0, 3, 2]), torch.tensor([0, 1, 1]))


@pytest.mark.parametrize("head", ["linear", "cosine"])
@pytest.mark.parametrize("setting", ["task", "class"])
@backbones
def test_a_direction_is_that_of_the_gradient_with_the_statistics_of_predicting(
    make: Callable[[tuple[int, ...]], Backbone], shape: tuple[int, ...], setting: Setting, head: HeadKind
):
    model, batch = model_and_batch(make, shape, setting, head)
    expected = gradient_by_autograd(model, batch)
    torch.testing.assert_close(direction(model, batch), expected / expected.norm())


@backbones
def test_taking_a_direction_changes_nothing_in_the_model(
    make: Callable[[tuple[int, ...]], Backbone], shape: tuple[int, ...]
):
    model, batch = model_and_batch(make, shape, "task")
    before = {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    direction(model, batch)
    assert_same({name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}, before)
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_weights_that_are_not_learned_are_left_out():
    model, batch = model_and_batch(partial(Mlp, hidden=(6,)), (4,), "class")
    model.backbone.requires_grad_(requires_grad=False)
    assert len(direction(model, batch)) == model.head.weight.numel() + len(model.head.bias)


@pytest.mark.parametrize("size", [1e-12, 1e6])
def test_a_direction_has_length_one_however_small_or_large_the_gradient(size: float):
    model, batch = model_and_batch(partial(Mlp, hidden=(6,)), (4,), "class")
    expected = direction(model, batch)
    loss = model.loss
    model.loss = lambda batch: size * loss(batch)  # type: ignore[method-assign]
    torch.testing.assert_close(direction(model, batch), expected)


def test_no_gradient_at_all_has_no_direction():
    model, batch = model_and_batch(partial(Mlp, hidden=(6,)), (4,), "class")
    model.loss = lambda _: 0 * model.head.weight.sum()  # type: ignore[method-assign]
    assert not direction(model, batch).any()


# The samples that stay.


def slow_similarities(memory: Memory, batch: Batch, model: Model) -> tuple[list[float], float]:
    """Of each sample, and of the batch, the largest cosine with the mini-batches that memory gives next."""
    drawn = memory.draw(6)
    references = [gradient_by_autograd(model, drawn[i : i + 2]) for i in (0, 2, 4)]
    each = [max(cosine(gradient_by_autograd(model, one), r) for r in references) for one in batch.samples()]
    return each, max(cosine(gradient_by_autograd(model, batch), r) for r in references)


def test_a_memory_with_room_takes_every_sample_with_its_largest_cosine():
    selection, memory, model = GradientDiversity(**OPTIONS), Memory(20), small_model()
    first, second = small_batch(8), small_batch(5, seed=1)
    offer(selection, memory, first, model)
    assert torch.equal(memory.extra(SIMILARITY), torch.full((8,), 0.1))
    expected, _ = slow_similarities(copy_of(memory), second, model)
    offer(selection, memory, second, model)
    assert torch.equal(memory.x, torch.cat([first.x, second.x]))
    torch.testing.assert_close(memory.extra(SIMILARITY)[8:], torch.tensor(expected))


def full_memory(model: Model, seed: int) -> tuple[GradientDiversity, Memory]:
    selection, memory = GradientDiversity(**OPTIONS), Memory(12, seed=seed)
    for i in range(3):
        offer(selection, memory, by_class([0, 0, 0, 1], seed=100 * seed + i), model)
    return selection, memory


def test_a_full_memory_gives_slots_up_by_the_rule_of_the_paper():
    model, n_replaced, agreement = small_model(), 0, []
    for seed in range(25):
        selection, memory = full_memory(model, seed)
        slow = copy_of(memory)
        # Samples of the classes stored, of another, and of both: gradients that agree more or less.
        batch = by_class([[2, 1, 2, 2], [2, 2, 2, 2], [1, 1, 1, 1], [0, 1, 2, 2], [0, 0, 0, 0]][seed % 5], seed=seed)
        offer(selection, memory, batch, model)

        c, c_batch = slow_similarities(slow, batch, model)
        agreement.append(c_batch)
        if c_batch < 0:
            C = slow.extra(SIMILARITY).tolist()
            p = torch.tensor([(s - min(C)) / (max(C) - min(C)) + 0.01 for s in C])
            candidates = torch.multinomial(p, 4, generator=slow.rng).tolist()
            r = torch.rand(4, generator=slow.rng, dtype=torch.float64).tolist()
            for j, i in enumerate(candidates):
                old, new = (C[i] + 1) / 2, (c[j] + 1) / 2
                if r[j] < old / (old + new):
                    n_replaced += 1
                    slow.write([i], batch[[j]].with_extra(similarity=torch.tensor(c[j : j + 1])))
        assert torch.equal(memory.x, slow.x)
        assert torch.equal(memory.y, slow.y)
        torch.testing.assert_close(memory.extra(SIMILARITY), slow.extra(SIMILARITY))
        assert torch.equal(memory.rng.get_state(), slow.rng.get_state())
    n_opposed = sum(c < 0 for c in agreement)
    assert sum(-0.2 < c < 0 for c in agreement) > 1
    assert sum(0 < c < 0.4 for c in agreement) > 1
    assert 5 < n_replaced < 4 * n_opposed < 4 * len(agreement)


def test_a_batch_like_those_stored_changes_nothing():
    model = small_model()
    selection, memory = full_memory(model, 0)
    before = memory[:]
    offer(selection, memory, by_class([0, 0, 0, 0], seed=7), model)
    assert torch.equal(memory.x, before.x)
    assert torch.equal(memory.y, before.y)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 14), min_size=1, max_size=6),
    capacity=st.integers(1, 10),
    n_references=st.integers(1, 4),
    reference_size=st.integers(1, 4),
    seed=st.integers(0, 999),
)
def test_memory_holds_only_what_was_offered_once_each_and_is_filled_first(
    sizes: list[int], capacity: int, n_references: int, reference_size: int, seed: int
):
    selection, memory = GradientDiversity(n_references, reference_size), Memory(capacity, seed=seed)
    model, rng, n = small_model(), torch.Generator().manual_seed(seed), 0
    for i, size in enumerate(sizes):
        batch = by_class(torch.randint(3, (size,), generator=rng).tolist(), seed=seed + i)
        offer(selection, memory, batch.with_extra(number=torch.arange(n, n + size)), model)
        n += size
        assert len(memory) == min(capacity, n)
    numbers = Counter(memory.extra("number").tolist())
    assert set(numbers) <= set(range(n))
    assert max(numbers.values()) == 1
    assert -1 <= memory.extra(SIMILARITY).min() <= memory.extra(SIMILARITY).max() <= 1


def test_it_alone_needs_the_head_and_it_forms_no_prototypes():
    assert [name for name in names("selections") if find("selections", name).needs_head] == ["gradient_diversity"]
    assert GradientDiversity().prototypes() is None
    assert GradientDiversity().distances(Memory(3)) is None
