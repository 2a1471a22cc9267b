"""Requests and answers as JSON, and the arrays in them."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema
from torch import Tensor

from holdfast.core.classes import MAX_TASKS, Setting
from holdfast.core.detectors import DetectorName
from holdfast.core.inputs import MAX_WEIGHT
from holdfast.core.model import HeadKind
from holdfast.core.optimizers import OptimizerName

NAME = "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
KEY = "^[!-~]{1,128}$"  # of an idempotency key: printable, without spaces
MOST_SAMPLES = 10_000  # of one request

_NUMBERS: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {"anyOf": [{"type": "number"}, {"$ref": "#/components/schemas/Rows"}]},
}
ROWS_SCHEMA: dict[str, Any] = {**_NUMBERS, "title": "Rows", "description": "An array of numbers, or of such arrays."}
_X_SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "maxItems": MOST_SAMPLES,
    "items": {"$ref": "#/components/schemas/Rows"},
    "description": "One array of numbers a sample, all of one shape.",
}


class Unfit(ValueError):
    """A request that is well formed, but does not fit the model or itself."""


def _is_rows(value: Any) -> Any:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_SAMPLES:
        raise ValueError(f"give an array of 1 to {MOST_SAMPLES:,} samples")
    if not _all_numbers(value, depth=0):
        raise ValueError("give arrays of numbers, or of such arrays, none of them empty")
    return value


def _all_numbers(value: list[Any], depth: int) -> bool:
    if not value or depth > 16:
        return False
    kinds = set(map(type, value))
    if kinds <= {int, float}:
        return depth > 0
    if depth == 0 and kinds != {list}:
        return False
    return all(_all_numbers(item, depth + 1) if type(item) is list else type(item) in (int, float) for item in value)


def _as_whole(value: Any) -> Any:
    """Return 20.0 as 20: JSON does not tell them apart."""
    return int(value) if type(value) is float and value.is_integer() else value


WHOLE = BeforeValidator(_as_whole)  # stands behind the range, which else is not in the schema
Rows = Annotated[list[Any], BeforeValidator(_is_rows), WithJsonSchema(_X_SCHEMA)]
Label = StrictBool | StrictInt | Annotated[float, Field(strict=True, allow_inf_nan=False)] | StrictStr


class Packed(BaseModel):
    """Numbers as bytes: several times shorter and faster than JSON."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dtype: Literal["uint8", "float32"]
    shape: list[Annotated[int, Field(strict=True, ge=1, le=2**31), WHOLE]] = Field(min_length=2, max_length=8)
    data: str = Field(description="Base64 of the bytes, little-endian, the last axis first to change.")


Ids = Annotated[
    list[Annotated[int, Field(strict=True, ge=-(2**53), le=2**53), WHOLE] | Annotated[str, Field(max_length=200)]],
    Field(min_length=1, max_length=MOST_SAMPLES),
]
Task = Annotated[int, Field(strict=True, ge=0, lt=MAX_TASKS), WHOLE]
Weights = Annotated[
    list[Annotated[float, Field(ge=0, le=MAX_WEIGHT, allow_inf_nan=False)]],
    Field(min_length=1, max_length=MOST_SAMPLES, description="How much each sample counts; by default 1."),
]


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Inputs(_Given):
    x: Rows | Packed
    task: Task | None = Field(default=None, description="The task of all samples, where the setting knows it.")


class Observation(Inputs):
    y: list[Label] = Field(min_length=1, max_length=MOST_SAMPLES, description="One label a sample.")
    sample_weight: Weights | None = None


class Question(Inputs):
    ids: Ids | None = Field(default=None, description="Keep the samples under these ids until their labels come.")
    scores: bool = Field(default=False, description="Also give one number a class.")
    proba: bool = Field(default=False, description="Also give one probability a class.")
    decision: bool = Field(
        default=False, description="Also say which samples are unknown; the model needs the setting `unknown`."
    )
    top: Annotated[int, Field(strict=True, ge=1, le=1000), WHOLE] | None = Field(
        default=None, description="Also give so many best labels, with scores."
    )


class Labels(_Given):
    """Labels of inputs that were predicted with ids."""

    ids: Ids
    y: list[Label] = Field(min_length=1, max_length=MOST_SAMPLES, description="One label an id.")
    sample_weight: Weights | None = None
    task: Task | None = Field(default=None, description="The task of all samples, where the setting knows it.")


class PartGiven(BaseModel):
    """A part by its name, with options beside it."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str = Field(max_length=100)


class Settings(_Given):
    """The settings of a new model; whatever is left out has its default."""

    method: str | PartGiven | None = Field(default=None, description="None: the first batch decides.")
    backbone: str | PartGiven | None = None
    selection: str | PartGiven | None = None
    retrieval: str | PartGiven | None = None
    setting: Setting = "free"
    head: HeadKind | None = None
    n_classes: Annotated[int, Field(strict=True, ge=1, le=100_000), WHOLE] | None = None
    memory: Annotated[int, Field(strict=True, ge=1, le=10_000_000), WHOLE] | Annotated[str, Field(max_length=20)] = 1000
    optimizer: OptimizerName = "sgd"
    lr: float = Field(default=0.1, gt=0, le=1000)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    standardise: bool | None = Field(default=None, description="None: where it is a gain.")
    unknown: float | None = Field(default=None, gt=0, lt=1, description="Share of known samples called unknown.")
    boundaries: DetectorName | None = None
    recover: bool = True
    seed: Annotated[int, Field(strict=True, ge=0, le=2**53), WHOLE] = 0


class Answer(BaseModel):
    pass


class Observed(Answer):
    """The answer to an observation, which is on disk and learned."""

    loss: float | None = Field(description="The loss of the batch; null if it is no number.")
    number: int = Field(description="Of the record in the journal.")
    n_observed: int = Field(description="Batches that the model has observed.")


class TaskEnded(Answer):
    number: int
    n_observed: int


class Ranked(Answer):
    label: Label
    score: float


class Decided(Answer):
    label: Label
    probability: float
    is_unknown: bool


class Predicted(Answer):
    labels: list[Label]
    top: list[list[Ranked]] | None = None
    scores: list[list[float | None]] | None = Field(
        default=None, description="One number a class; null where a class does not compete."
    )
    proba: list[list[float]] | None = Field(default=None, description="One probability a class.")
    classes: list[Label] | None = Field(default=None, description="The labels of the columns of scores and proba.")
    decisions: list[Decided] | None = None
    n_observed: int = Field(description="Batches that the model had observed which predicted.")


class Described(Answer):
    """A model as it is now."""

    name: str
    settings: dict[str, Any]
    n_observed: int
    n_samples: int
    input_shape: list[int] | None
    accuracy: float | None
    n_waiting: int
    journal_bytes: int
    samples_in_memory: int | None
    failure: str | None


class Models(Answer):
    models: list[Described]


class Health(Answer):
    status: Literal["ok", "failing"]
    models: int
    failing: list[str]


class Failed(Answer):
    """The answer to every request that cannot be met."""

    detail: str


def tensor_of(x: list[Any] | Packed, *, as_bytes: bool) -> Tensor:
    """Return the samples of a request; Unfit if the arrays have different shapes or are too large.

    Args:
        as_bytes: take whole numbers from 0 to 255 as bytes, for a model that began with bytes.
    """
    if isinstance(x, Packed):
        return _unpacked(x)
    try:
        array = np.asarray(x, dtype=np.float64)
    except (ValueError, OverflowError, TypeError) as error:
        raise Unfit(f"x cannot be read as one array: {error}") from error
    if as_bytes and (array == array.astype(np.uint8)).all():
        return torch.from_numpy(array.astype(np.uint8))
    with np.errstate(over="ignore"):
        return torch.from_numpy(array.astype(np.float32))


def _unpacked(x: Packed) -> Tensor:
    dtype = np.dtype(x.dtype).newbyteorder("<")
    try:
        data = base64.b64decode(x.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unfit(f"x.data is not base64: {error}") from error
    wanted = math.prod(x.shape) * dtype.itemsize
    if len(data) != wanted:
        raise Unfit(f"x.data holds {len(data):,} bytes, but shape {x.shape} of {x.dtype} needs {wanted:,}")
    if x.shape[0] > MOST_SAMPLES:
        raise Unfit(f"x holds {x.shape[0]:,} samples: give at most {MOST_SAMPLES:,} at once")
    return torch.from_numpy(np.frombuffer(bytearray(data), dtype=dtype).reshape(x.shape))


def plain_scores(scores: Tensor) -> list[list[float | None]]:
    """Return scores as JSON has them: nothing is infinite there."""
    return [[value if math.isfinite(value) else None for value in row] for row in scores.tolist()]


def ranked(scores: Tensor, top: int, classes: Sequence[Any]) -> list[list[dict[str, Any]]]:
    """Return the best labels of each row with their scores, best first, among the classes that compete."""
    best = scores.topk(min(top, scores.shape[1]), dim=1)
    return [
        [{"label": classes[c], "score": score} for c, score in zip(places, values, strict=True) if math.isfinite(score)]
        for places, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
