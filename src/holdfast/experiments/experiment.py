"""Description of a run, as plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from holdfast.core.fingerprint import Fingerprint
from holdfast.core.options import Before
from holdfast.experiments.foreign import check_same, foreign_code
from holdfast.parts import Kind, pieces
from holdfast.settings import (
    LARGEST,
    PARTS,
    LearnerSettings,
    Part,
    filled,
    neutral_fields,
    resolved_settings,
    without_neutral,
)

MAX_BATCH = 2**31  # samples
STORED = {"stored": True}  # the context in which an experiment of a file is validated


class Experiment(LearnerSettings):
    """One method on one stream with one seed, every option stated. Its hash names its folder.

    Settings that a user gives are completed with today's defaults and checked, and code of other packages that they
    name is imported. `Experiment.stored` reads an experiment of a file, and imports nothing that it names.

    Attributes:
        foreign_code: by file, a hash of the code of other packages that its parts are made of.

    Example:
        >>> experiment = Experiment(method="er", stream="split_digits", selection="ring", seed=1)
        >>> experiment.label, experiment.selection.options
        ('split_digits er seed 1', {'per_class': None})
    """

    stream: Part
    batch_size: int = Field(default=10, ge=1, le=MAX_BATCH)
    seed: int = Field(default=1234, ge=0, le=LARGEST)
    benchmark: str = ""  # the recipe it comes from; by default the stream's name
    row: str = ""  # what its line in a table is called; by default the method's name
    foreign_code: Annotated[Fingerprint, Before({})] = Field(default_factory=dict)

    def model_post_init(self, context: Any) -> None:
        stated = {"benchmark": self.benchmark or self.stream.name, "row": self.row or self.method.name}
        for field, value in (stated | self._whole(is_stored=context == STORED)).items():
            object.__setattr__(self, field, value)

    def _whole(self, *, is_stored: bool) -> dict[str, Any]:
        """Return the fields that follow from others, and the parts with all their options."""
        if is_stored:
            return {field: filled(kind, getattr(self, field)) for field, kind in PARTS.items()}
        resolved, code = resolved_settings(self), foreign_code(self.named_parts)
        check_same(self.foreign_code, code)
        return {field: getattr(resolved, field) for field in (*PARTS, "head")} | {"foreign_code": code}

    @staticmethod
    def stored(content: Any) -> Experiment:
        """Return the experiment that a file states; ValueError if it states none.

        What the file does not state counts as its neutral value, or stays unknown if it has none.

        Example:
            >>> Experiment.stored({"stream": "split_digits", "method": "evil:Evil"}).method
            Part(name='evil:Evil', options={})
        """
        return Experiment.model_validate(content, context=STORED)

    @property
    def named_parts(self) -> list[tuple[Kind, str]]:
        """The kind and the name of all its parts, of wrappers, and of the streams that its stream is made of."""
        named = [each for field, kind in PARTS.items() for each in pieces(kind, getattr(self, field).name)]
        return [*named, *(("streams", name) for name in _inner_names(self.stream.options.get("of")))]

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides the result, as plain data. What has its neutral value is left out, see `Before`."""
        said = self.model_dump(mode="json")
        for field, value in neutral_fields(type(self).model_fields).items():
            if said[field] == value:
                del said[field]
        parts = {field: without_neutral(kind, getattr(self, field)) for field, kind in PARTS.items()}
        return said | {field: part.model_dump(mode="json") for field, part in parts.items()}

    @property
    def digest(self) -> str:
        """A short hash of everything that decides the result."""
        return short_hash(self.identity)

    @property
    def kind(self) -> str:
        """The same for experiments that differ in the seed only, which are averaged."""
        return self.model_copy(update={"seed": 0}).digest

    @property
    def label(self) -> str:
        """Return the name of the run for messages."""
        return f"{self.benchmark} {self.row} seed {self.seed}"

    @property
    def path(self) -> str:
        """Return the path of its results below a folder of results."""
        return f"{self.benchmark}/{self.row}/{self.seed}-{self.digest}"

    def learner_settings(self, n_classes: int) -> dict[str, Any]:
        """Return the settings of its learner, for a head of `n_classes` unless it says otherwise."""
        settings = self.model_dump(include=set(LearnerSettings.model_fields))
        return settings | {"n_classes": self.n_classes or n_classes}


def short_hash(content: Mapping[str, Any]) -> str:
    """Return the hash that stands in the name of a run's folder."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def parting(one: Experiment, other: Experiment) -> str:
    """Return the first setting in which two experiments differ, as 'lr=0.1, not 0.2'; '' if they are equal."""
    mine, theirs = flat(one.identity), flat(other.identity)
    for name in [*mine, *theirs]:
        first, second = mine.get(name), theirs.get(name)
        if json.dumps(first) != json.dumps(second):
            return f"{name}={first}, not {second}"
    return ""


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name, options as 'method.replay_size'.

    Example:
        >>> flat({"lr": 0.1, "method": {"name": "er", "replay_size": 10}})
        {'lr': 0.1, 'method': 'er', 'method.replay_size': 10}
    """
    found: dict[str, Any] = {}
    for field, value in settings.items():
        for name, part in value.items() if isinstance(value, dict) else [("", value)]:
            found[f"{field}.{name}".removesuffix(".").removesuffix(".name")] = part
    return found


def _inner_names(of: object) -> list[str]:
    """Return the names of the streams that a stream is made of."""
    if isinstance(of, dict):
        return [str(of.get("name")), *_inner_names(of.get("of"))]
    return [of] if isinstance(of, str) else []
