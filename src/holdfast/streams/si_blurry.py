"""Si-Blurry."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from holdfast.streams._base import Samples, Stream, seeded_generator
from holdfast.streams._blur import blurred, divided, random_groups
from holdfast.streams._pool import rows_by_class
from holdfast.streams._wrapped import BlurredStream
from holdfast.streams.i_blurry import Percentage


class SiBlurry(BlurredStream):
    """Another stream's data in stochastic blurred tasks, Si-Blurry.

    As i-Blurry, but the number of classes of a task is random: each class draws its task uniformly.

    Moon et al., "Online Class Incremental Learning on Stochastic Blurry Task Boundary via Mask and Visual Prompt
    Tuning", ICCV 2023.

    Args:
        of: the stream that gives the samples.
        disjoint_classes, blurry_samples: N and M, in per cent.
    """

    def __init__(
        self,
        of: Stream,
        *,
        seed: int = 1234,
        n_slices: Annotated[int, Field(ge=1)] = 5,
        disjoint_classes: Percentage = 50.0,
        blurry_samples: Percentage = 10.0,
    ) -> None:
        generator = seeded_generator("si-blurry", seed)

        def draw(samples: Samples) -> list[Tensor]:
            disjoint, blurry = divided(list(rows_by_class(samples)), disjoint_classes, generator)
            groups = random_groups(disjoint, n_slices, generator), random_groups(blurry, n_slices, generator)
            return blurred(samples, *groups, blurry_samples=blurry_samples, generator=generator)

        super().__init__(of, draw)
