"""Each rule against the constraints that define it, and GEM's against the solvers of SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize, nnls
from torch import Tensor, nn

from holdfast.core.gradients import (
    assign_gradient,
    flat_gradient,
    nonnegative_minimum,
    project_agem,
    project_gem,
    project_soft_gem,
    rotate_mega2,
)
from tests.support.oracles import gem_by_nnls

# Whole numbers are often zero, parallel, opposed or twice the same; the others hardly ever.
numbers = st.one_of(st.integers(-3, 3).map(float), st.floats(-10, 10).map(lambda x: round(x, 3)))
losses = st.floats(0, 10)


def vectors(size: int) -> st.SearchStrategy[Tensor]:
    return arrays(np.float64, size, elements=numbers).map(torch.from_numpy)


pairs = st.integers(1, 6).flatmap(lambda n: st.tuples(vectors(n), vectors(n)))
one_and_many = st.tuples(st.integers(1, 6), st.integers(1, 7)).flatmap(
    lambda sizes: st.tuples(
        vectors(sizes[0]), arrays(np.float64, (sizes[1], sizes[0]), elements=numbers).map(torch.from_numpy)
    )
)


def angle(a: Tensor, b: Tensor) -> float:
    """Kahan's formula, which is exact for small angles too."""
    a, b = a * b.norm(), b * a.norm()
    return float(2 * torch.atan2((a - b).norm(), (a + b).norm()))


# Flat gradients.


def test_a_flat_gradient_is_the_gradients_one_after_the_other():
    a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True), torch.tensor([5.0], requires_grad=True)
    loss = (a * torch.tensor([[1.0, 10.0], [100.0, 1000.0]])).sum() + 7 * b.sum()
    assert flat_gradient(loss, [a, b]).tolist() == [1, 10, 100, 1000, 7]


def test_what_a_loss_does_not_depend_on_has_a_gradient_of_zero():
    used, unused = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    assert flat_gradient(used.sum(), [unused, used]).tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_assigning_a_flat_gradient_undoes_the_flattening(layout: torch.memory_format):
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2)).to(memory_format=layout)
    parameters = list(network.parameters())
    loss = network(torch.randn(5, 2, 4, 4)).square().sum()
    gradient = flat_gradient(loss, parameters)
    loss = network(torch.zeros(5, 2, 4, 4)).sum()
    expected = torch.autograd.grad(loss, parameters)
    assign_gradient(flat_gradient(network(torch.zeros(5, 2, 4, 4)).sum(), parameters), parameters)
    torch.testing.assert_close([p.grad for p in parameters], list(expected))
    assign_gradient(gradient, parameters)
    assert torch.equal(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]), gradient)


# A-GEM.


def test_a_gem_leaves_an_agreeing_gradient_alone():
    gradient = torch.tensor([1.0, 2.0])
    assert torch.equal(project_agem(gradient, torch.tensor([0.0, 1.0])), gradient)


def test_a_gem_removes_exactly_what_would_raise_the_memory_loss():
    projected = project_agem(torch.tensor([1.0, -2.0]), torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(projected, torch.tensor([1.0, 0.0]))


@given(pairs)
def test_a_gem_gives_the_nearest_vector_that_does_not_raise_the_memory_loss(pair: tuple[Tensor, Tensor]):
    g, r = pair
    projected = project_agem(g, r)
    assert projected @ r >= -1e-9
    # The nearest point of a half space through zero: what is taken away is along r, and orthogonal to what is left.
    taken = projected - g
    assert taken @ r >= -1e-9
    assert float(taken @ projected) == pytest.approx(0, abs=1e-9)
    assert float(taken.norm() * r.norm()) == pytest.approx(float(taken @ r), abs=1e-9)


# ε-SOFT-GEM.


@given(pairs, st.floats(0, 1))
def test_soft_gem_gives_the_nearest_vector_whose_share_along_the_reference_is_epsilon(
    pair: tuple[Tensor, Tensor], epsilon: float
):
    g, r = pair
    assume(g.any() and r.any())
    projected = project_soft_gem(g, r, epsilon=epsilon)
    share = float(projected @ r / (g.norm() * r.norm()))
    assert share >= epsilon - 1e-9
    if g @ r >= epsilon * g.norm() * r.norm():
        assert torch.equal(projected, g)
    else:
        # Nearest: on the border of the half space, and moved along its normal.
        assert share == pytest.approx(epsilon, abs=1e-9)
        assert angle(projected - g, r) == pytest.approx(0, abs=1e-6) or (projected - g).norm() < 1e-9


@given(pairs)
def test_soft_gem_with_an_epsilon_of_zero_is_a_gem(pair: tuple[Tensor, Tensor]):
    torch.testing.assert_close(project_soft_gem(*pair, epsilon=0.0), project_agem(*pair))


# MEGA-II.


@given(pairs, losses, losses)
def test_mega_2_turns_by_the_angle_that_serves_both_losses_best(
    pair: tuple[Tensor, Tensor], new_loss: float, old_loss: float
):
    g, r = pair
    assume(g.any() and r.any())
    phi = angle(g, r)
    assume(1e-3 < phi < math.pi - 1e-3)
    turned = rotate_mega2(g, r, new_loss=new_loss, old_loss=old_loss)
    beta = angle(g, turned)
    assert float(turned.norm()) == pytest.approx(float(g.norm()))
    assert 0 <= beta <= math.pi / 2 + 1e-9

    def worth(b: np.ndarray | float) -> np.ndarray | float:
        return new_loss * np.cos(b) + old_loss * np.cos(phi - b)

    assert worth(beta) >= worth(np.linspace(0, math.pi / 2, 10_001)).max() - 1e-9
    # Towards r, and nowhere else.
    assert angle(turned, r) == pytest.approx(abs(phi - beta), abs=1e-6)


def test_mega_2_on_paper():
    g, r = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 5.0])
    turned = rotate_mega2(g, r, new_loss=1.0, old_loss=1.0)
    torch.testing.assert_close(turned, torch.tensor([math.sqrt(2), math.sqrt(2)]))
    torch.testing.assert_close(rotate_mega2(g, r, new_loss=0.0, old_loss=1.0), torch.tensor([0.0, 2.0]))
    torch.testing.assert_close(rotate_mega2(g, r, new_loss=1.0, old_loss=0.0), g)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_mega_2_does_not_depend_on_the_length_of_gradients(scale: float):
    g, r = torch.tensor([2.0, 0.0]), torch.tensor([-1.0, 5.0])
    turned = rotate_mega2(g, r, new_loss=1.0, old_loss=2.0)
    scaled = rotate_mega2(scale * g, scale * r, new_loss=1.0, old_loss=2.0)
    torch.testing.assert_close(scaled / scale, turned)


@pytest.mark.parametrize("r", [[0.0, 0.0], [2.0, 4.0], [-3.0, -6.0]])
def test_mega_2_stays_where_there_is_no_plane_to_turn_in(r: list[float]):
    g = torch.tensor([1.0, 2.0])
    assert torch.equal(rotate_mega2(g, torch.tensor(r), new_loss=0.1, old_loss=5.0), g)
    assert not rotate_mega2(torch.zeros(2), torch.tensor(r), new_loss=0.1, old_loss=5.0).any()


# Gradients that vanish.


@pytest.mark.parametrize("length", [0.0, 1e-30])
def test_a_reference_without_a_direction_leaves_the_gradient_alone(length: float):
    g, r = torch.tensor([1.0, -2.0]), torch.tensor([-length, length])
    assert torch.equal(project_agem(g, r), g)
    assert torch.equal(project_soft_gem(g, r, epsilon=0.5), g)
    assert torch.equal(rotate_mega2(g, r, new_loss=1.0, old_loss=1.0), g)
    assert torch.equal(project_gem(g, r[None]), g)


# GEM.


@given(one_and_many)
def test_gem_gives_the_nearest_vector_that_raises_the_loss_of_no_task(case: tuple[Tensor, Tensor]):
    g, references = case
    projected = project_gem(g, references)
    torch.testing.assert_close(projected, torch.from_numpy(gem_by_nnls(g, references, 0.0, 0.0)), atol=1e-6, rtol=1e-6)
    assert (references @ projected >= -1e-6).all()


@given(one_and_many, st.floats(0, 2), st.sampled_from([1e-3, 0.1, 1.0]))
def test_gem_with_memory_strength_and_ridge_solves_its_dual(case: tuple[Tensor, Tensor], gamma: float, ridge: float):
    g, references = case
    assume((references @ g < 0).any())
    projected = project_gem(g, references, memory_strength=gamma, ridge=ridge)
    expected = torch.from_numpy(gem_by_nnls(g, references, gamma, ridge))
    torch.testing.assert_close(projected, expected, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_gem_agrees_with_a_solver_of_the_primal_problem(seed: int):
    rng = np.random.default_rng(seed)
    g, references = rng.normal(size=12), rng.normal(size=(6, 12))
    primal = minimize(
        lambda z: 0.5 * ((z - g) ** 2).sum(),
        g,
        jac=lambda z: z - g,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda z: references @ z, "jac": lambda _: references},
        options={"ftol": 1e-12},  # below some 1e-14 its line search fails by rounding on some processors
    )
    assert primal.success
    projected = project_gem(torch.from_numpy(g), torch.from_numpy(references))
    np.testing.assert_allclose(projected, primal.x, atol=1e-6)


@given(one_and_many, st.floats(0, 2))
def test_gem_leaves_a_gradient_alone_that_all_tasks_agree_with(case: tuple[Tensor, Tensor], gamma: float):
    g, references = case
    agreeing = references * torch.where(references @ g < 0, -1.0, 1.0)[:, None]
    assert torch.equal(project_gem(g, agreeing, memory_strength=gamma, ridge=1e-3), g)


@given(pairs)
def test_gem_with_one_task_is_a_gem(pair: tuple[Tensor, Tensor]):
    g, r = pair
    torch.testing.assert_close(project_gem(g, r[None]), project_agem(g, r), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize(
    "rows", [[0, 0], [0, 1, 0, 1, 0], [2, 0, 2, 1], list(range(20)) * 2], ids=["twice", "many twice", "zeros", "forty"]
)
def test_gem_in_single_precision_bears_gradients_that_repeat(rows: list[int], scale: float):
    rng = torch.Generator().manual_seed(1)
    different = torch.randn(20, 500, generator=rng)
    if rows != list(range(20)) * 2:
        different[2] = 0
    g = scale * (torch.randn(500, generator=rng) - different.sum(dim=0))
    references = scale * different[rows]
    projected = project_gem(g, references)
    expected = torch.from_numpy(gem_by_nnls(g.double(), references.double(), 0.0, 0.0))
    assert float((projected - expected).norm()) <= 1e-4 * float(g.norm())
    lengths = references.norm(dim=1) * g.norm()
    assert (references @ projected >= -1e-5 * lengths).all()


@pytest.mark.parametrize("memory_strength", [0.0, 0.5])
def test_gem_bears_opposed_tasks(memory_strength: float):
    r = torch.tensor([1.0, 0.0, 0.0])
    references = torch.stack([r, -r, torch.tensor([0.0, 1.0, 0.0])])
    projected = project_gem(torch.tensor([3.0, -2.0, 1.0]), references, memory_strength=memory_strength)
    # Along the first axis nothing may move, since one of two tasks would lose. The second needs v = 2, more than γ.
    torch.testing.assert_close(projected, torch.tensor([0.0, 0.0, 1.0]))


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12))
def test_the_minimum_over_non_negative_numbers_is_that_of_scipy(seed: int, n_rows: int, n_columns: int):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n_rows, n_columns)), rng.normal(size=n_rows)
    v = nonnegative_minimum(a.T @ a, -a.T @ b)
    assert (v >= 0).all()
    _, residual = nnls(a, b)
    assert np.linalg.norm(a @ v - b) == pytest.approx(residual, abs=1e-7)
