"""The squared difference of logits, written a second time as loops over the numbers that were there."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.losses.logit_distillation import logit_distillation_loss


def random_case(seed, n_units, n_columns, n_now):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(n_units), n_now, generator=generator, dtype=torch.float64, requires_grad=True)
    stored = torch.randn(len(n_units), n_columns, generator=generator, dtype=torch.float64)
    return logits, stored, torch.tensor(n_units)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 3))
def test_it_is_the_mean_over_the_units_that_there_were(seed, n_units, filled_up, grown):
    n_columns = max(n_units) + filled_up
    logits, stored, units = random_case(seed, n_units, n_columns, n_columns + grown)
    squares = [(logits[i, j] - stored[i, j]).item() ** 2 for i in range(len(n_units)) for j in range(n_units[i])]
    loss = logit_distillation_loss(logits, stored, units)
    assert loss.item() == pytest.approx(sum(squares) / len(squares), rel=1e-9)


def test_of_a_head_that_never_grew_it_is_the_mean_squared_error():
    logits, stored, units = random_case(0, [5, 5, 5], 5, 5)
    torch.testing.assert_close(logit_distillation_loss(logits, stored, units), F.mse_loss(logits, stored))


def test_units_that_came_later_get_no_gradient():
    logits, stored, units = random_case(1, [2, 3], 3, 4)
    logit_distillation_loss(logits, stored, units).backward()
    had_unit = torch.tensor([[True, True, False, False], [True, True, True, False]])
    assert torch.equal(logits.grad != 0, had_unit)
