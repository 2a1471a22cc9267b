"""Description of a run, as plain data."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import Field

from holdfast.settings import LARGEST, LearnerSettings, Part

MAX_BATCH = 2**31  # samples


class Experiment(LearnerSettings):
    """One method on one stream with one seed. Its hash names its folder.

    Example:
        >>> experiment = Experiment(method="er", stream="split_digits", seed=1)
        >>> experiment.label
        'split_digits er seed 1'
    """

    stream: Part
    batch_size: int = Field(default=10, ge=1, le=MAX_BATCH)
    seed: int = Field(default=1234, ge=0, le=LARGEST)
    benchmark: str = ""  # the recipe it comes from; by default the stream's name
    row: str = ""  # what its line in a table is called; by default the method's name

    def model_post_init(self, _: Any) -> None:
        object.__setattr__(self, "benchmark", self.benchmark or self.stream.name)
        object.__setattr__(self, "row", self.row or self.method.name)

    @property
    def digest(self) -> str:
        """A short hash of everything that decides the result."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

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
        """The settings of its learner, for a head of `n_classes` unless it says otherwise."""
        settings = self.model_dump(include=set(LearnerSettings.model_fields))
        return settings | {"n_classes": self.n_classes or n_classes}
