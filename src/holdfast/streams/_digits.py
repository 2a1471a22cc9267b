"""The small digits that come with scikit-learn."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from holdfast.core.extras import how_to_install
from holdfast.data.layouts import Rows
from holdfast.data.places import MissingData
from holdfast.streams._base import seeded_generator

N_TEST = 297


@cache
def digits() -> tuple[Rows, Rows]:
    """Return 1,500 samples for training and 297 for testing: always the same ones, all classes in proportion."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as reason:
        raise MissingData(
            f"the digits come with scikit-learn, which is not installed: {how_to_install('digits')}"
        ) from reason
    x, y = load_digits(return_X_y=True)
    x, y = x.astype(np.uint8), y.astype(np.int64)

    mixed = torch.randperm(len(y), generator=seeded_generator("digits")).numpy()
    by_class = mixed[y[mixed].argsort(kind="stable")]
    is_test = np.zeros(len(y), np.bool_)
    is_test[by_class[np.arange(N_TEST) * len(y) // N_TEST]] = True  # evenly spaced, so in proportion
    return (x[~is_test], y[~is_test]), (x[is_test], y[is_test])
