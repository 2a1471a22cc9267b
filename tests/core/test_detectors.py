"""Detectors of change against River's, and against what each promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from holdfast.core.detectors import Adwin, Ddm, Detector, PageHinkley, make_detector

CLEAR = [(0.1, 0.4), (0.3, 0.1)]  # changes whose moment is not a matter of some buckets
DETECTORS = {"adwin": Adwin, "ddm": Ddm, "page_hinkley": PageHinkley}


def errors(seed: int, rates: tuple[float, ...], n: int = 1500) -> list[float]:
    """Errors, 0 or 1, whose rate changes."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.random(n) < rate for rate in rates]).astype(float).tolist()


def alarms(detector: Detector, values: list[float]) -> list[int]:
    return [i for i, value in enumerate(values) if detector.update(value)]


def alarms_of_river(detector: Any, values: list[float]) -> list[int]:
    found = []
    for i, value in enumerate(values):
        detector.update(value)
        if detector.drift_detected:
            found.append(i)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rates", [(0.1, 0.4), (0.3, 0.1), (0.2, 0.3, 0.2), (0.2,)], ids=str)
def test_alarms_are_those_of_river(seed: int, rates: tuple[float, ...]) -> None:
    drift = pytest.importorskip("river.drift")
    values = errors(seed, rates)
    assert alarms(Ddm(), values) == alarms_of_river(drift.binary.DDM(), [bool(value) for value in values])
    assert alarms(PageHinkley(), values) == alarms_of_river(drift.PageHinkley(), values)
    ours, theirs = alarms(Adwin(), values), alarms_of_river(drift.ADWIN(), values)
    # They differ by a bucket in how parts are counted, hence by few checks.
    assert bool(ours) == bool(theirs)
    if rates in CLEAR:
        assert abs(ours[0] - theirs[0]) <= 2 * Adwin.EVERY


@pytest.mark.parametrize("name", DETECTORS)
def test_a_rise_of_the_error_rate_is_found_and_a_saved_detector_goes_on(name: str) -> None:
    values = errors(3, (0.05, 0.6), n=600)
    whole = alarms(make_detector(name), values)  # type: ignore[arg-type]
    assert 600 <= whole[-1] < 700
    first, second = make_detector(name), make_detector(name)  # type: ignore[arg-type]
    before = alarms(first, values[:610])
    second.load_state_dict(first.state_dict())
    assert before + [610 + i for i in alarms(second, values[610:])] == whole


def test_adwin_keeps_the_window_of_now_in_few_buckets() -> None:
    adwin, values = Adwin(), errors(0, (0.1, 0.5), n=5000)
    alarms(adwin, values)
    assert len(adwin.sizes) < 100
    assert 3000 < adwin.width <= 5500
    window = np.array(values[len(values) - adwin.width :])
    assert adwin.mean == pytest.approx(window.mean())
    spread = sum(adwin.deviations) + sum(
        n * (s / n - window.mean()) ** 2 for n, s in zip(adwin.sizes, adwin.sums, strict=True)
    )
    assert spread == pytest.approx(window.var() * len(window))


def test_adwin_raises_few_alarms_where_nothing_changes() -> None:
    n_alarms = sum(len(alarms(Adwin(), errors(seed, (0.3,), n=3000))) for seed in range(10))
    assert n_alarms <= 2


def test_numbers_that_are_none_are_refused() -> None:
    for name in DETECTORS:
        with pytest.raises(ValueError, match="finite"):
            make_detector(name).update(float("nan"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 or 1"):
        Ddm().update(2.0)
    with pytest.raises(ValueError, match="there are adwin"):
        make_detector("ks")  # type: ignore[arg-type]


def test_saved_buckets_that_do_not_add_up_are_refused() -> None:
    adwin = Adwin()
    alarms(adwin, errors(0, (0.1,), n=100))
    with pytest.raises(ValueError, match="add up"):
        Adwin().load_state_dict({**adwin.state_dict(), "width": 7})
