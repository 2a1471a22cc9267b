"""The drift map keeps what stays and shows what wanders."""

import numpy as np
import pytest

from holdfast.report.drift_map import drift_map

pytest.importorskip("openTSNE", reason="openTSNE is not installed")


def clouds(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds far from each other, and the cloud of each row."""
    rng = np.random.default_rng(0)
    which = np.arange(n) % 3
    return 20 * np.eye(8)[which] + rng.normal(size=(n, 8)), which


def test_features_that_stay_are_placed_where_they_were():
    features, which = clouds()
    first, later = drift_map(np.stack([features, features]))
    centres = np.stack([first[which == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(later[:, None] - centres, axis=2).argmin(axis=1)
    assert np.array_equal(nearest, which)
    assert np.abs(later - first).max() < 0.1 * np.ptp(first)


def test_features_that_become_like_another_class_are_placed_among_it():
    features, which = clouds()
    swapped = 20 * np.eye(8)[(which + 1) % 3] + (features - 20 * np.eye(8)[which])
    first, later = drift_map(np.stack([features, swapped]).astype(np.float16))
    centres = np.stack([first[which == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(later[:, None] - centres, axis=2).argmin(axis=1)
    assert np.array_equal(nearest, (which + 1) % 3)


def test_the_map_is_the_same_every_time():
    features, _ = clouds()
    stacked = np.stack([features, features + 1])
    assert np.array_equal(drift_map(stacked), drift_map(stacked))


def test_the_map_of_the_first_task_is_but_for_a_shift_the_same_whatever_comes_later():
    features, _ = clouds()
    alone, followed = drift_map(features[None])[0], drift_map(np.stack([features, -features]))[0]
    np.testing.assert_allclose(alone - alone.mean(axis=0), followed - followed.mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("features", [np.zeros((2, 30, 4)), np.ones((1, 5, 4)) * np.arange(5)[:, None]])
def test_there_is_no_map_of_nothing_to_tell_apart(features):
    assert drift_map(features) is None
