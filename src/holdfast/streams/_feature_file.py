"""Features of a data set in one file: written whole or not at all, checked by its checksum."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from holdfast.core.checkpoint import checksum_of, read_checkpoint, write_checkpoint
from holdfast.data.places import MissingData, data_root, user_cache

FOLDER, ENDING = "features", ".features"
DIGEST = 12  # letters of the checksum in a name


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features (n, d) of the rows (n,) of a part of a data set; rows are in rising order."""

    rows: Tensor
    features: Tensor

    def read(self, rows: Tensor) -> Tensor:
        """Give the features (k, d) of rows (k,) of the data set; all have to be there, see `holds`."""
        return self.features[torch.searchsorted(self.rows, rows)]

    def holds(self, rows: Tensor) -> bool:
        """Tell whether all rows (k,) are there."""
        return bool(torch.isin(rows, self.rows).all())


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """Features of the training and the test samples of a stream's data set.

    Attributes:
        stream, backbone: names and options that made it, as plain data.
    """

    train: FeatureTable
    test: FeatureTable
    stream: dict[str, Any]
    backbone: dict[str, Any]

    def write(self, folder: Path) -> Path:
        """Write the file in one step; its name holds the stream, the backbone and a checksum of the content."""
        state = {
            "stream": self.stream,
            "backbone": self.backbone,
            "train_rows": self.train.rows,
            "train": self.train.features,
            "test_rows": self.test.rows,
            "test": self.test.features,
        }
        name = f"{self.stream['name']}-{self.backbone['name']}-{checksum_of(state)[:DIGEST]}{ENDING}".replace(":", ".")
        folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(folder / name, state)
        return folder / name


class _Stored(BaseModel):
    """The content of a file, as it has to be."""

    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True, extra="forbid")

    stream: dict[str, Any]
    backbone: dict[str, Any]
    train_rows: Tensor
    train: Tensor
    test_rows: Tensor
    test: Tensor


def read_features(path: Path) -> FeatureFile:
    """Read a file of features; ValueError if it is damaged, or another than its name says."""
    state = read_checkpoint(path)
    try:
        stored = _Stored.model_validate(state)
    except ValidationError as error:
        raise ValueError(f"{path} holds no features: {error.errors()[0]['msg']}") from error
    digest = re.search(r"-([0-9a-f]+)$", path.stem)
    if digest is None or not checksum_of(state).startswith(digest[1]) or len(digest[1]) < DIGEST:
        raise ValueError(f"{path} is not the file that its name says: make it again with 'holdfast features'")
    train, test = _table(path, stored.train_rows, stored.train), _table(path, stored.test_rows, stored.test)
    if train.features.shape[1] != test.features.shape[1]:
        raise ValueError(f"{path} has features of two widths for training and testing")
    return FeatureFile(train, test, stored.stream, stored.backbone)


def _table(path: Path, rows: Tensor, features: Tensor) -> FeatureTable:
    fits = rows.dtype == torch.int64 and rows.ndim == 1 and features.ndim == 2 and len(rows) == len(features)
    if not fits or features.dtype != torch.float32 or not features.shape[1] or not bool((rows.diff() > 0).all()):
        raise ValueError(f"{path} has features of shape {tuple(features.shape)} for {tuple(rows.shape)} rows in order")
    return FeatureTable(rows, features)


def find_features(name: str, data: Path | None) -> Path:
    """Find the file of a name, with or without its checksum, in the folder of data or in the user's cache."""
    if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
        raise ValueError(f"'{name}' names no file of features: give its name without folders")
    stem = name.removesuffix(ENDING)
    places = [data_root(data) / FOLDER, user_cache() / FOLDER]
    for place in places:
        exact = place / f"{stem}{ENDING}"
        if exact.is_file():
            return exact
        found = sorted(path for path in place.glob(f"*{ENDING}") if path.stem.rpartition("-")[0] == stem)
        if len(found) > 1:
            listed = ", ".join(path.stem for path in found)
            raise ValueError(f"'{name}' may be any of {listed} in {place}: give one of these names")
        if found:
            return found[0]
    looked = " and ".join(map(str, dict.fromkeys(places)))
    raise MissingData(f"no features '{name}' in {looked}: make them with 'holdfast features STREAM --backbone NAME'")
