"""Classes that come and go, each in a bump of time."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from holdfast.streams._base import Samples, Stream, seeded_generator, shuffled
from holdfast.streams._pool import rows_by_class
from holdfast.streams._wrapped import BlurredStream


class Gaussian(BlurredStream):
    """Another stream's data without boundaries: every class has a peak in time, and samples around it.

    The peaks of the classes are evenly spaced, in an order that belongs to the seed. A sample's time is drawn from a
    normal distribution around the peak of its class; samples come in the order of their times. Tasks are equal parts
    of the stream, which only say when it is tested.

    Shanahan et al., "Encoders and Ensembles for Task-Free Continual Learning", 2021.

    Args:
        of: the stream that gives the samples.
        width: standard deviation of a class's times, in distances between two peaks.
    """

    def __init__(
        self,
        of: Stream,
        *,
        seed: int = 1234,
        n_slices: Annotated[int, Field(ge=1)] = 10,
        width: Annotated[float, Field(ge=0)] = 1.0,
    ) -> None:
        generator = seeded_generator("gaussian schedule", seed)

        def draw(samples: Samples) -> list[Tensor]:
            rows = rows_by_class(samples)
            time = torch.empty(len(samples), dtype=torch.float64)
            for peak, c in enumerate(shuffled(list(rows), generator)):
                time[rows[c]] = peak + width * torch.randn(len(rows[c]), generator=generator, dtype=torch.float64)
            return list(torch.tensor_split(time.argsort(stable=True), n_slices))

        super().__init__(of, draw, in_order=True)
