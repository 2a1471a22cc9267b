from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.experiments.flops import counting
from tests.support.bare import bare
from tests.support.same import assert_same
from tests.support.toy import toy_batches


def test_a_layer_costs_a_product_forward_and_two_back() -> None:
    layer = nn.Linear(5, 3)
    x = torch.ones(7, 5, requires_grad=True)
    with counting() as count:
        layer(x).sum().backward()
    assert count.flops == 3 * 2 * 7 * 5 * 3


def test_the_first_layer_has_no_gradient_of_its_input() -> None:
    with counting() as count:
        nn.Linear(5, 3)(torch.ones(7, 5)).sum().backward()
    assert count.flops == 2 * 2 * 7 * 5 * 3


def test_a_convolution_costs_its_kernel_at_every_place() -> None:
    x, kernel = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)
    with counting() as count:
        F.conv2d(x, kernel, padding=1)
    assert count.flops == 2 * 2 * 8 * 8 * 4 * 3 * 9


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (lambda a, _: torch.linalg.cholesky(a), 6**3 // 3),
        (lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), 6 * 6 * 2),
        (lambda a, b: torch.linalg.solve_triangular(a, b.T, upper=False, left=False), 6 * 6 * 2),
        (lambda a, b: torch.cholesky_solve(b, a), 2 * 6 * 6 * 2),
        (lambda a, _: torch.cholesky_inverse(a), 2 * 6**3 // 3),
        (lambda a, _: torch.linalg.eigh(a), 9 * 6**3),
        (lambda a, b: a @ b[:, 0], 2 * 6 * 6),
        (lambda a, b: b.T.clone().addmm_(b.T, a), 2 * 2 * 6 * 6),
        (lambda a, _: a + a, 0),
    ],
)
def test_factorisations_and_systems_have_their_usual_cost(run: Any, flops: int) -> None:
    a, b = 4 * torch.eye(6, dtype=torch.float64), torch.ones(6, 2, dtype=torch.float64)
    with counting() as count:
        run(a, b)
    assert count.flops == flops


@pytest.mark.parametrize("method", ["er", "gem", "slda", "drr"])
def test_counting_changes_no_bit(method: str) -> None:
    backbone: Any = "identity" if method == "slda" else {"name": "mlp", "hidden": [8]}
    counted, other = (bare(method, setting="class", memory=30, backbone=backbone) for _ in range(2))
    for x, y, task in toy_batches("class")[:15]:
        with counting():
            counted.observe(x, y, task)
        other.observe(x, y, task)
    assert_same(counted.state_dict(), other.state_dict())


def flops_of(method: str, **options: Any) -> int:
    learner = bare(method, setting="class", memory=30, backbone={"name": "mlp", "hidden": [8]}, **options)
    batches: list[tuple[Tensor, Tensor, int | None]] = toy_batches("class")
    for x, y, task in batches[:5]:
        learner.observe(x, y, task)
    x, y, task = batches[5]
    with counting() as count:
        learner.observe(x, y, task)
    return count.flops


def test_a_method_costs_as_many_passes_as_it_makes() -> None:
    alone = flops_of("finetune")
    assert flops_of("er", replay_size=10) == 2 * alone
    assert flops_of("er", replay_size=30) == 4 * alone
    assert flops_of("er", replay_size=10, steps_per_batch=3) == 6 * alone
    assert flops_of("er+rar", replay_size=10, repeats=3) == 6 * alone
