"""i-Blurry-N-M."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.streams._base import Samples, Stream, seeded_generator
from holdfast.streams._blur import blurred, divided, even_groups
from holdfast.streams._pool import rows_by_class
from holdfast.streams._wrapped import BlurredStream

Percentage = Annotated[float, Field(ge=0, le=100)]


class IBlurry(BlurredStream):
    """Another stream's data in tasks with blurred boundaries, i-Blurry-N-M.

    N per cent of the classes are disjoint: all their samples come in one task. The other classes are blurry: each has a
    task of its own too, but M per cent of its samples come in the other tasks.

    Koh et al., "Online Continual Learning on Class Incremental Blurry Task Configuration with Anytime Inference",
    ICLR 2022.

    Args:
        of: the stream that gives the samples.
        disjoint_classes, blurry_samples: N and M, in per cent.
    """

    drawn_as: ClassVar[str] = "i-blurry"

    def __init__(
        self,
        of: Stream,
        *,
        seed: int = 1234,
        n_slices: Annotated[int, Field(ge=1)] = 5,
        disjoint_classes: Percentage = 50.0,
        blurry_samples: Percentage = 10.0,
    ) -> None:
        generator = seeded_generator(self.drawn_as, seed)

        def draw(samples: Samples) -> list[Tensor]:
            disjoint, blurry = divided(list(rows_by_class(samples)), disjoint_classes, generator)
            groups = [self.groups(classes, n_slices, generator) for classes in (disjoint, blurry)]
            return blurred(samples, *groups, blurry_samples=blurry_samples, generator=generator)

        super().__init__(of, draw)

    @staticmethod
    def groups(classes: list[int], n_slices: int, generator: torch.Generator) -> list[list[int]]:
        """Return the classes of each task."""
        del generator
        return even_groups(classes, n_slices)
