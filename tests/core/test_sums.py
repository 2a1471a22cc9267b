"""Exact sums: the same bits in any order, and those of slow sums of fractions."""

from __future__ import annotations

import copy
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.core import sums as module
from holdfast.core.sums import ClassSums
from tests.support.same import assert_same

N_CLASSES, N_FEATURES = 3, 5


def made(n: int, *, seed: int = 0, octaves: int = 0) -> tuple[Tensor, Tensor]:
    """Samples whose sizes differ by up to 2^±octaves."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, N_FEATURES, generator=rng)
    sizes = 2.0 ** torch.randint(-octaves, octaves + 1, (n, 1), generator=rng)
    return x * sizes, torch.randint(N_CLASSES, (n,), generator=rng)


def summed(x: Tensor, y: Tensor, size: int = 1000, *, products: bool = True) -> ClassSums:
    sums = ClassSums(N_CLASSES, N_FEATURES, products=products)
    for part_x, part_y in zip(torch.split(x, size), torch.split(y, size), strict=True):
        sums.add(part_x, part_y)
    return sums


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 40),
    size=st.integers(1, 40),
    seed=st.integers(0, 1000),
    octaves=st.sampled_from([0, 3, 30]),
    products=st.booleans(),
)
def test_any_order_and_any_batches_lead_to_the_same_bits(
    n: int, size: int, seed: int, octaves: int, products: bool
) -> None:
    x, y = made(n, seed=seed, octaves=octaves)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    one, other = summed(x, y, products=products), summed(x[order], y[order], size, products=products)
    assert_same(one.state_dict(), other.state_dict())
    assert torch.equal(one.sums(), other.sums())
    assert torch.equal(one.gram(), other.gram())


def test_full_blocks_lead_to_the_bits_of_single_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = made(50, octaves=3)
    alone = summed(x, y, 1)
    monkeypatch.setattr(module, "BLOCK", 7)
    monkeypatch.setattr(module, "PANEL", 2)
    assert_same(summed(x, y, 3).state_dict(), alone.state_dict())
    assert_same(summed(x, y).state_dict(), alone.state_dict())


@pytest.mark.parametrize("octaves", [0, 30])
def test_merged_sums_have_the_bits_of_all_samples_learned_in_one_place(octaves: int) -> None:
    x, y = made(30, octaves=octaves)
    merged, part = summed(x[:11], y[:11]), summed(x[11:], y[11:])
    kept = copy.deepcopy(part.state_dict())
    merged.merge(part)
    assert_same(merged.state_dict(), summed(x, y).state_dict())
    assert_same(part.state_dict(), kept)


def test_sums_of_more_classes_can_be_merged_into_those_of_fewer() -> None:
    x, y = made(30)
    few = ClassSums(1, N_FEATURES, products=True)
    few.add(x[y == 0], y[y == 0])
    few.merge(summed(x[y > 0], y[y > 0]))
    assert_same(few.state_dict(), summed(x, y).state_dict())


@pytest.mark.parametrize("octaves", [0, 30])
def test_what_is_subtracted_leaves_the_bits_of_the_rest(octaves: int) -> None:
    x, y = made(30, octaves=octaves)
    sums = summed(x, y)
    sums.subtract(x[4:13], y[4:13])
    rest = torch.cat([torch.arange(4), torch.arange(13, 30)])
    assert_same(sums.state_dict(), summed(x[rest], y[rest]).state_dict())
    sums.subtract(x[rest], y[rest])
    assert_same(sums.state_dict(), ClassSums(N_CLASSES, N_FEATURES, products=True).state_dict())


def test_the_sums_are_those_of_fractions() -> None:
    x = (torch.randint(-1000, 1000, (20, N_FEATURES), generator=torch.Generator().manual_seed(0)) / 128).float()
    y = torch.arange(20) % N_CLASSES
    sums = summed(x, y)
    gram, totals = sums.gram() * 0, sums.sums() * 0
    sums.fold()
    exact = [[Fraction(value) for value in row] for row in x.tolist()]
    for i in range(N_FEATURES):
        for j in range(N_FEATURES):
            gram[i, j] = float(sum(row[i] * row[j] for row in exact))
        for c in range(N_CLASSES):
            totals[c, i] = float(sum(row[i] for row, label in zip(exact, y.tolist(), strict=True) if label == c))
    assert torch.equal(sums.sums(), totals)
    torch.testing.assert_close(sums.gram(), gram, rtol=0, atol=2.0**-40 * 64 * 20)
    assert sums.counts.tolist() == [7, 7, 6]


@pytest.mark.parametrize("size", [1e-20, 1e-3, 1.0, 255.0, 1e12])
def test_the_sums_are_those_of_float64_but_for_what_is_left_out(size: float) -> None:
    x, y = made(200)
    x = x * size
    sums = summed(x, y)
    sums.fold()
    # A fine digit is at most half of a coarse unit, which is at most 2^-14 of the largest number of its sample.
    left_out = 2.0**-30 * x.double().abs().amax(dim=1).square().sum().item()
    torch.testing.assert_close(sums.gram(), x.double().T @ x.double(), rtol=1e-12, atol=left_out)
    totals = torch.zeros(N_CLASSES, N_FEATURES, dtype=torch.float64).index_add_(0, y, x.double())
    torch.testing.assert_close(sums.sums(), totals, rtol=1e-10, atol=1e-10 * size)


def test_a_sample_of_zeros_counts() -> None:
    sums = summed(torch.zeros(2, N_FEATURES), torch.tensor([0, 2]))
    assert sums.state_dict()["counts"].tolist() == [1, 0, 1]
    assert not sums.gram().any()


def test_no_sample_waits_in_what_is_saved() -> None:
    x, y = made(3)
    state = summed(x, y).state_dict()
    assert state.keys().isdisjoint({"waiting", "n_waiting"})
    restored = ClassSums(N_CLASSES, N_FEATURES, products=True)
    restored.load_state_dict(state)
    assert restored.n_samples == 3
    assert_same(restored.state_dict(), state)


def test_more_samples_than_were_added_cannot_be_subtracted_and_nothing_changes() -> None:
    x, y = made(10)
    sums = summed(x, y)
    before = copy.deepcopy(sums.state_dict())
    with pytest.raises(ValueError, match=r"class \d has \d samples, 1 fewer than to be forgotten"):
        sums.subtract(x[:1].expand(int((y == y[0]).sum()) + 1, -1), y[:1].expand(int((y == y[0]).sum()) + 1))
    with pytest.raises(ValueError, match="samples of this size were not learned"):
        sums.subtract(1e6 * x[:1], y[:1])
    assert_same(sums.state_dict(), before)


@pytest.mark.parametrize("limit", ["MAX_OF_A_CLASS", "MAX_SQUARES"])
def test_full_sums_refuse_more_and_keep_what_they_have(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = made(9)
    sums, other = summed(x, y), summed(x, y)
    before = copy.deepcopy(sums.state_dict())
    monkeypatch.setattr(module, limit, 3)
    with pytest.raises(ValueError, match="the sums are full"):
        sums.add(x, y)
    with pytest.raises(ValueError, match="the sums are full"):
        sums.merge(other)
    assert_same(sums.state_dict(), before)


def test_the_largest_sums_that_are_allowed_do_not_overflow() -> None:
    """A block of samples at the top of their window, as often as the bounds allow."""
    x = torch.full((2, N_FEATURES), 7.99999)
    sums = summed(x, torch.zeros(2, dtype=torch.int64))
    sums.fold()
    each = int(sums.coarse_by_window[0][0, 0]) // 2
    assert each <= 2 ** (2 * module.BITS)
    n = module.MAX_SQUARES // 4 // each + module.BLOCK  # the last block that is let in
    assert 2 * n * each < 2**63  # and two of them merged
    assert n + module.BLOCK < module.MAX_OF_A_CLASS
    assert module.MAX_OF_A_CLASS * 2 ** (2 * module.BITS) < 2**63
    assert module.BLOCK * 2 ** (2 * module.BITS) < 2**53  # one product of matrices in float64


@pytest.mark.parametrize("product_kept", [True, False])
def test_saved_sums_that_do_not_fit_are_refused(product_kept: bool) -> None:
    x, y = made(6, octaves=30)
    state = summed(x, y, products=product_kept).state_dict()
    window = next(iter(state["n_by_window"]))
    bad = {
        "other features": {"n_features": 4},
        "other counts": {"counts": state["counts"] + 1},
        "floats": {"counts": state["counts"].double()},
        "negative": {"counts": torch.tensor([-1, 4, 3])},
        "no window": {"sums_by_window": {}},
        "a shape": {"sums_by_window": state["sums_by_window"] | {window: torch.zeros(3, 1, dtype=torch.int64)}},
        "a far window": {
            "n_by_window": {99: 6},
            "sums_by_window": {99: torch.zeros(3, 5, dtype=torch.int64)},
            **{
                name: {99: torch.zeros(5, 5, dtype=torch.int64)} if product_kept else {}
                for name in ("coarse_by_window", "cross_by_window")
            },
        },
    }
    for what, change in bad.items():
        with pytest.raises(ValueError, match="the saved sums are"):
            ClassSums(N_CLASSES, N_FEATURES, products=product_kept).load_state_dict(state | change)
        assert what
