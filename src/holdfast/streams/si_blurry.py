"""Si-Blurry."""

from __future__ import annotations

from typing import ClassVar

import torch

from holdfast.streams._blur import random_groups
from holdfast.streams.i_blurry import IBlurry


class SiBlurry(IBlurry):
    """Another stream's data in stochastic blurred tasks, Si-Blurry.

    As i-Blurry, but the number of classes of a task is random: each class draws its task uniformly.

    Moon et al., "Online Class Incremental Learning on Stochastic Blurry Task Boundary via Mask and Visual Prompt
    Tuning", ICCV 2023.

    Args:
        of: the stream that gives the samples.
        disjoint_classes, blurry_samples: N and M, in per cent.
    """

    drawn_as: ClassVar[str] = "si-blurry"

    @staticmethod
    def groups(classes: list[int], n_slices: int, generator: torch.Generator) -> list[list[int]]:
        """Return the classes of each task, each class in one that is drawn."""
        return random_groups(classes, n_slices, generator)
