"""The map on which one sees features drift."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.extras import how_to_install

Array = NDArray[np.float64]

NO_MAP = f"The drift maps are left out, since openTSNE is not installed: {how_to_install('report')}."
FEWEST_SAMPLES = 10  # with less there are no neighbours to speak of


def drift_map(features: NDArray[Any]) -> Array | None:
    """Return (tasks, n, 2), the places of the features (tasks, n, d) of the same samples after each task.

    The map is a t-SNE of the features directly after the first task. Later features are placed into the same map
    beside the first features that they are nearest to; first features do not move. Return None with a handful of
    samples, or for features that are all the same.

    Raises:
        ModuleNotFoundError: without openTSNE.
    """
    from openTSNE import TSNE

    when_learned, later = features[0].astype(np.float64), features[1:].astype(np.float64)
    n, d = when_learned.shape
    if n < FEWEST_SAMPLES or not np.ptp(when_learned, axis=0).any():
        return None
    fitted = TSNE(perplexity=min(30, (n - 1) / 3), neighbors="exact", n_jobs=1, random_state=0).fit(when_learned)
    placed = fitted.transform(later.reshape(-1, d)) if len(later) else np.empty((0, 2))
    # Only now, since placing shifts the whole map the first time.
    return np.concatenate([fitted, placed]).reshape(-1, n, 2).astype(np.float64)
