from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.gradients import project_agem, step_gec
from holdfast.methods.gec import GEC
from tests.support.by_hand import LR, built, gradient_by_hand, opposed, weights
from tests.support.small import small_batch, small_model

numbers = st.lists(st.floats(-5, 5), min_size=3, max_size=3).map(lambda row: torch.tensor(row, dtype=torch.float64))


@given(numbers, numbers, st.floats(-3, 3))
def test_it_is_the_nearest_gradient_that_lowers_the_old_loss_enough(g, r, phi):
    v = step_gec(g, r, decrease=phi)
    if float(g @ r) >= phi:
        assert torch.equal(v, g)
    elif float(r @ r) > 1e-6:
        assert float(v @ r) == pytest.approx(phi, abs=1e-6)
        along_r = (v - g) / r.norm()
        torch.testing.assert_close(
            along_r - (along_r @ r) / (r @ r) * r, torch.zeros(3, dtype=torch.float64), atol=1e-6, rtol=0
        )


@given(numbers, numbers)
def test_without_excess_and_damping_it_is_a_gem(g, r):
    torch.testing.assert_close(step_gec(g, r, decrease=0.0), project_agem(g, r), atol=1e-9, rtol=1e-9)


def test_a_step_is_the_one_on_paper():
    method = built(GEC, small_model(), replay_size=100, gain=2.0, epsilon=0.5, damping=0.25)
    old = small_batch(6)
    method.remember(old)
    new = opposed(old)
    theta = weights(method.model)
    g, r = gradient_by_hand(method.model, new), gradient_by_hand(method.model, old)
    excess = float(method.model.loss(old).detach()) - 0.5
    lam = max(0.0, (2.0 * excess - float(r @ g)) / (float(r @ r) + 0.25))
    assert lam > 0
    method.observe(new)
    torch.testing.assert_close(weights(method.model), theta - LR * (g + lam * r))


def test_the_threshold_is_the_average_of_the_old_loss_so_far():
    method = built(GEC, small_model(), decay=0.9)
    assert [method.threshold(loss) for loss in (2.0, 1.0, 4.0)] == pytest.approx([2.0, 2.0, 1.9])
    assert method.old_loss == pytest.approx(0.9 * 1.9 + 0.1 * 4.0)
    fixed = built(GEC, small_model(), epsilon=0.3)
    assert [fixed.threshold(loss) for loss in (2.0, 1.0)] == [0.3, 0.3]
