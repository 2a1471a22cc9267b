"""What an experiment has otherwise than another, in words of the settings."""

from __future__ import annotations

from typing import Any

from holdfast.build import PARTS, Part, names, options_of
from holdfast.experiments.experiment import Experiment

UNLIKE_ANYWAY = {"seed", "benchmark", "row"}
DEFAULT = "the default"


def stated(experiment: Experiment) -> dict[str, str]:
    """Every setting by name but the seed, options as 'method.replay_size'; what is left to a default is not there."""
    return _flat(experiment.model_dump(mode="json", exclude={"seed"}))


def differences(experiment: Experiment, other: Experiment) -> dict[str, tuple[str, str]]:
    """By name, the settings that decide the numbers and are not the same: of `experiment` and of `other`.

    An option that is left to its default is the same as one that states it, and options of parts that are not the same
    are not compared. Seed and names of tables do not count.
    """
    mine, theirs = decided(experiment), decided(other)
    found = {name: (mine.get(name, DEFAULT), theirs.get(name, DEFAULT)) for name in [*theirs, *mine]}
    unlike = {name: pair for name, pair in found.items() if pair[0] != pair[1]}
    return {name: pair for name, pair in unlike.items() if "." not in name or name.partition(".")[0] not in unlike}


def described(difference: tuple[str, tuple[str, str]]) -> str:
    """A difference as 'replay_size=32 instead of 256'."""
    name, (mine, other) = difference
    return f"{name.removeprefix('method.')}={mine} instead of {other}"


def decided(experiment: Experiment) -> dict[str, str]:
    """By name, all settings that decide the numbers but the seed, those left to a default too."""
    settings = experiment.model_dump(mode="json", exclude=UNLIKE_ANYWAY)
    for field, kind in PARTS.items():
        part: Part = getattr(experiment, field)
        # Code of another package is not imported to read a result, which may come from a stranger.
        if part.name in names(kind):
            defaults = {name: value for name, value in options_of(kind, part.name).items() if value is not None}
            settings[field] = {**defaults, **settings[field]}
    return _flat(
        {
            field: {option: _plain(v) for option, v in value.items()} if isinstance(value, dict) else _plain(value)
            for field, value in settings.items()
        }
    )


def _plain(value: Any) -> Any:
    """A value as it is written in a file: 8.0 is 8 there, and a tuple a list."""
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _flat(settings: dict[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for field, value in settings.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        flat |= {f"{field}.{name}".removesuffix(".").removesuffix(".name"): str(part) for name, part in parts}
    return flat
