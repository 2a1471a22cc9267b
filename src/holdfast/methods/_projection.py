"""Random projections of features, worked out so that a sample's result does not depend on its batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from holdfast.memory.storage import check_allocation

MAX_WIDTH = 65_536  # numbers of a projected sample; more is more likely a mistake
FRACTION = 8  # bits of a number of the matrix behind the point
WHOLE = 3  # and before it


def random_matrix(n_features: int, width: int, rng: torch.Generator) -> Tensor:
    """Return (n_features, width) standard normal numbers, rounded to multiples of 2^-8 and written as whole ones."""
    check_allocation(8 * n_features * width)
    limit = 2 ** (FRACTION + WHOLE) - 1
    normal = torch.randn(n_features, width, generator=rng, dtype=torch.float64)
    return normal.mul_(2**FRACTION).round_().clamp_(-limit, limit)


def project(features: Tensor, matrix: Tensor) -> Tensor:
    """Return (n, width), features (n, d) times a `random_matrix`.

    Each sample is rounded to whole numbers of as many bits as make all sums exact in float64: 31 with 1,280 features.
    So neither the batch nor the processor changes a bit of the result.
    """
    bits = 53 - (FRACTION + WHOLE) - math.ceil(math.log2(max(2, features.shape[1])))
    exponents = torch.frexp(features.abs().amax(dim=1, keepdim=True)).exponent
    unit = torch.ldexp(torch.ones_like(features[:, :1]), exponents - bits)
    return (features / unit).round() @ matrix * (unit * 2.0**-FRACTION)
