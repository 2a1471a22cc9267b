"""Running standardisation against NumPy on everything that came."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.standardise import LIMIT, OUTLIER, Standardise
from tests.support.same import assert_same


def after(x: torch.Tensor, sizes: list[int]) -> Standardise:
    """Return the standardisation that batches of these sizes of x, in order, lead to."""
    standardise, start = Standardise(x.shape[1]), 0
    for size in sizes:
        if start < len(x):
            standardise.update(x[start : start + size])
        start += size
    if start < len(x):
        standardise.update(x[start:])
    return standardise


@given(st.integers(0, 1000), st.lists(st.integers(1, 9), max_size=8))
@settings(max_examples=25, deadline=None)
def test_any_split_into_batches_leads_to_the_mean_and_deviation_of_all(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 3)) * [1.0, 1e-3, 1e4] + [0.0, 1e3, -1e6]
    found = after(torch.tensor(x), sizes)
    np.testing.assert_allclose(found.mean.numpy(), x.mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.spread.numpy(), x.std(0), rtol=1e-6)
    z = found(torch.tensor(x)).numpy()
    np.testing.assert_allclose(z, (x - x.mean(0)) / x.std(0), rtol=1e-5, atol=1e-5)


def test_a_constant_column_becomes_0_and_is_named() -> None:
    x = torch.rand(50, 3, generator=torch.Generator().manual_seed(0))
    x[:, 1] = 0.1
    standardise = after(x, [7] * 8)
    assert torch.equal(standardise(x)[:, 1], torch.zeros(50))
    assert standardise.constant_columns() == [1]


def test_one_outlier_changes_little_but_a_new_scale_is_followed() -> None:
    rng = torch.Generator().manual_seed(0)
    standardise = after(torch.randn(1000, 1, generator=rng), [10] * 100)
    spread = standardise.spread.item()
    standardise.update(torch.tensor([[1e12]]))
    assert standardise.spread.item() < spread * (1 + OUTLIER**2 / 1000)
    assert standardise(torch.tensor([[1e12]])).item() == LIMIT
    for _ in range(60):
        standardise.update(1000 * torch.randn(10, 1, generator=rng))
    assert 400 < standardise.spread.item() < 1200


def test_before_any_sample_and_after_one_inputs_come_out_finite() -> None:
    standardise = Standardise(2)
    x = torch.tensor([[3.0, -4.0]])
    assert torch.equal(standardise(x), x)
    standardise.update(x)
    assert torch.equal(standardise(x), torch.zeros(1, 2))


def test_a_copy_shares_nothing_that_is_written_over() -> None:
    standardise = after(torch.rand(20, 2), [5] * 4)
    kept = standardise.state_dict()
    before = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in kept.items()}
    standardise.update(torch.rand(5, 2))
    assert_same(kept, before)
    again = Standardise(2)
    again.load_state_dict(kept)
    assert_same(again.state_dict(), before)


@pytest.mark.parametrize(
    "damage",
    [
        {"count": -1.0},
        {"count": 1e9},
        {"mean": torch.zeros(3, dtype=torch.float64)},
        {"mean": torch.full((2,), torch.nan, dtype=torch.float64)},
        {"squares": torch.full((2,), -1.0, dtype=torch.float64)},
        {"squares": torch.zeros(2)},
    ],
    ids=str,
)
def test_a_saved_state_that_no_stream_leads_to_is_refused(damage: dict[str, object]) -> None:
    state = after(torch.rand(20, 2), []).state_dict()
    with pytest.raises(ValueError, match="saved standardisation"):
        Standardise(2).load_state_dict({**state, **damage})
