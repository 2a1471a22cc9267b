"""The temperature of probabilities, and the error of probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from holdfast.core.calibration import Temperature, expected_calibration_error
from tests.support.same import assert_same


def overconfident(n: int, seed: int, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores that are `factor` times those that classes are drawn by."""
    rng = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(n, 4, generator=rng)
    y = torch.multinomial(scores.softmax(dim=1), 1, generator=rng)[:, 0]
    return factor * scores, y


@pytest.mark.parametrize("factor", [0.3, 1.0, 5.0, 40.0])
def test_the_temperature_of_a_stream_is_that_of_the_least_loss(factor: float) -> None:
    scores, y = overconfident(3000, 0, factor)
    temperature = Temperature()
    for part, classes in zip(scores.split(10), y.split(10), strict=True):
        temperature.update(part, classes)

    def loss(log_t: float) -> float:
        return float(torch.nn.functional.cross_entropy(scores.double() / np.exp(log_t), y))

    best = np.exp(minimize_scalar(loss, bounds=(-4, 4), method="bounded").x)
    assert temperature.value == pytest.approx(best, rel=0.15)


def test_probabilities_of_an_overconfident_model_become_those_of_its_accuracy() -> None:
    scores, y = overconfident(2000, 0, 6.0)
    temperature = Temperature()
    for part, classes in zip(scores.split(10), y.split(10), strict=True):
        temperature.update(part, classes)
    new, classes = overconfident(2000, 1, 6.0)
    before = expected_calibration_error(new.softmax(dim=1), classes)
    after = expected_calibration_error(temperature.probabilities(new), classes)
    assert before > 0.2
    assert after < 0.05


def test_a_class_that_does_not_compete_gets_0_and_teaches_nothing() -> None:
    temperature = Temperature()
    scores = torch.tensor([[3.0, 0.0, -torch.inf], [0.0, 1.0, -torch.inf]])
    assert temperature.probabilities(scores)[:, 2].tolist() == [0.0, 0.0]
    temperature.update(scores, torch.tensor([2, 7]))
    assert (temperature.n_seen, temperature.value) == (0, 1.0)
    temperature.update(scores, torch.tensor([0, 1]))
    assert temperature.n_seen == 2
    assert np.isfinite(temperature.value)


def test_scores_that_are_all_right_or_all_wrong_keep_the_temperature_in_range() -> None:
    for y in (0, 1):
        temperature = Temperature()
        for _ in range(200):
            temperature.update(torch.tensor([[1e6, -1e6]]), torch.tensor([y]))
        assert 0.01 <= temperature.value <= 100
        again = Temperature()
        again.load_state_dict(temperature.state_dict())
        assert_same(again.state_dict(), temperature.state_dict())


def test_a_saved_temperature_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="inverse"):
        Temperature().load_state_dict(Temperature().state_dict() | {"inverse": -1.0})


def test_the_calibration_error_is_that_of_slow_loops() -> None:
    rng = torch.Generator().manual_seed(0)
    p = torch.randn(300, 3, generator=rng, dtype=torch.float64).softmax(dim=1)
    y = torch.randint(3, (300,), generator=rng)
    total = 0.0
    for b in range(15):
        inside = [i for i in range(300) if b / 15 < p[i].max() <= (b + 1) / 15]
        if inside:
            right = np.mean([float(p[i].argmax() == y[i]) for i in inside])
            total += len(inside) / 300 * abs(right - np.mean([float(p[i].max()) for i in inside]))
    assert expected_calibration_error(p, y) == pytest.approx(total)
    with pytest.raises(ValueError, match="at least one"):
        expected_calibration_error(p[:0], y[:0])
