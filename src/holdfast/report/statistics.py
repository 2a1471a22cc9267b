"""Paired t-test, and its correction for several tests: is a difference more than noise?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def paired_t_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of Student's test that paired values have the same mean.

    Not a test over flips of signs, though that needs no distribution: with the paper's five seeds its p-value cannot be
    below 2/32, so that nothing would ever count.

    Returns:
        NaN for less than two pairs. Pairs that all differ by the same amount give 0, or 1 if that amount is none.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values make no pairs")
    differences = np.subtract(first, second)
    n = len(differences)
    if n < 2:
        return math.nan
    mean, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(n)
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return two_sided_p(mean / error, n - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm, Scand. J. Statist. 1979), in the order given.

    The k-th smallest of m is multiplied by m + 1 - k; none is below one before it, or above 1. NaN stays NaN, and is
    counted among the m.

    Example:
        >>> holm([0.04, 0.01])
        [0.04, 0.02]
    """
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    corrected, least = [math.nan] * len(p_values), 0.0
    for k, (p, i) in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - k) * p))
        corrected[i] = least
    return corrected


def two_sided_p(t: float, freedom: int) -> float:
    """Return the probability that Student's t with ν degrees of freedom (whole) is as far from zero as `t`.

    For whole ν the distribution is a finite sum (Abramowitz and Stegun 26.7.3 and 26.7.4). With θ = arctan(t/√ν)

        1 - p = 2/π ( θ + sin θ ( cos θ + 2/3 cos³ θ + … up to cos^{ν-2} θ ) )      ν odd
        1 - p = sin θ ( 1 + 1/2 cos² θ + 1·3/(2·4) cos⁴ θ + … up to cos^{ν-2} θ )   ν even
    """
    theta = math.atan2(abs(t), math.sqrt(freedom))
    cosine = math.cos(theta)
    odd = freedom % 2 == 1
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(1 if odd else 0, freedom - 1, 2):
        total += term
        term *= (power + 1) / (power + 2) * cosine**2
    inside = math.sin(theta) * total
    return max(0.0, 1 - (2 / math.pi * (theta + inside) if odd else inside))
