"""Differences between experiments, in words of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from holdfast.experiments.experiment import Experiment, flat
from holdfast.methods._base import ReplayMethod
from holdfast.parts import Kind, find, is_ours
from holdfast.settings import PARTS, Part, options_of, without_neutral

UNLIKE_ANYWAY = {"seed", "benchmark", "row"}
UNKNOWN = "not stated"


def stated(experiment: Experiment) -> dict[str, str]:
    """Return every setting by name but the seed, options as 'method.replay_size' and without those at defaults."""
    settings = experiment.model_dump(mode="json", exclude={"seed"})
    settings |= {field: {"name": part.name, **set_options(kind, part)} for field, kind, part in _parts(experiment)}
    return {name.replace("foreign_code.", "code of "): str(value) for name, value in flat(settings).items()}


def telling(experiment: Experiment, rivals: list[Experiment]) -> dict[str, str]:
    """Return the settings by which an experiment is told from others of its row, without options at their defaults.

    An option with the neutral value of older runs is told only beside the same part with another value.
    """
    settings, *others = (stated(each) for each in (experiment, *rivals))
    varying = sorted(name for name in {n for o in others for n in o} if len({o.get(name) for o in others}) > 1)
    told = {name: settings[name] for name in varying if name in settings}
    for field, kind, part in _parts(experiment):
        same = [each for each in rivals if getattr(each, field).name == part.name]
        for option in part.options.keys() - without_neutral(kind, part).options.keys():
            if len({str(getattr(each, field).options.get(option)) for each in same}) == 1:
                told.pop(f"{field}.{option}", None)
    return told


def differences(experiment: Experiment, other: Experiment) -> dict[str, tuple[str, str]]:
    """Return by name the settings that decide the numbers and differ: of `experiment` and of `other`.

    Options of different parts are not compared. Seed and names of tables do not count. What a stored experiment does
    not state is UNKNOWN.
    """
    mine, theirs = decided(experiment), decided(other)
    found = {name: (mine.get(name, UNKNOWN), theirs.get(name, UNKNOWN)) for name in [*theirs, *mine]}
    unlike = {name: pair for name, pair in found.items() if pair[0] != pair[1]}
    return {name: pair for name, pair in unlike.items() if "." not in name or name.partition(".")[0] not in unlike}


def between_rows(rows: dict[str, list[Experiment]]) -> list[str]:
    """Return a line for each row of a table, with the settings in which it differs; none where all are alike.

    Where a row has several experiments, only what they have in common is told. Memory, selection and retrieval are
    named only for methods with a memory. Options that some methods lack are named only where they differ from their
    defaults. Of three rows and more, what more than half of them have is said once, in a line above.
    """
    settings = {row: _in_common([_told(experiment) for experiment in variants]) for row, variants in rows.items()}
    values_of: dict[str, list[str]] = {}
    for told in settings.values():
        for name, value in told.items():
            values_of.setdefault(name, []).append(value)
    of_any = {*Experiment.model_fields, *(option.name for option in fields(ReplayMethod))}
    varying = {name for name, values in values_of.items() if name in of_any and len(set(values)) > 1}
    alike = {name for name, values in values_of.items() if values == [values[0]] * len(settings)}
    own = values_of.keys() - of_any - alike
    usual = {name: most for name in sorted(varying) if (most := _of_most(values_of[name])) is not None}
    lines = [f"unless said below: {_listed(usual)}"] if usual else []
    for row, told in settings.items():
        unlike = {name: value for name, value in told.items() if name in varying and usual.get(name) != value}
        unlike |= {n: value for n, value in told.items() if n in own and _is_set(rows[row][0], n, value)}
        if unlike:
            lines.append(f"{row}: {_listed(unlike)}")
    return lines


def joined(experiment: Experiment) -> Part:
    """Return the stream of an experiment; of joint training the stream whose tasks it mixes."""
    stream = experiment.stream
    if stream.name != "joint" or "of" not in stream.options:
        return stream
    options = {name: value for name, value in stream.options.items() if name != "of"}
    return Part(name=str(stream.options["of"]), options=options)


def _of_most(values: list[str]) -> str | None:
    """Return the value of more than half of at least three values, else None."""
    commonest = max(values, key=values.count)
    return commonest if len(values) > 2 and 2 * values.count(commonest) > len(values) else None


def _listed(settings: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _in_common(variants: list[dict[str, str]]) -> dict[str, str]:
    first, *others = variants
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _told(experiment: Experiment) -> dict[str, str]:
    """Return the settings by which rows of a table may differ: fields, and options of the method by their names."""
    method = experiment.method
    defaults = _options_of_method(method.name)
    hidden = {*UNLIKE_ANYWAY, "method", "foreign_code"}
    if defaults and "replay_size" not in defaults:
        hidden |= {"memory", "selection", "retrieval"}
    told = {}
    for field in sorted(type(experiment).model_fields.keys() - hidden):
        value: Any = joined(experiment) if field == "stream" else getattr(experiment, field)
        if field == "head" and (not is_ours("methods", method.name) or value == find("methods", method.name).head):
            value = None  # as the method wants it
        told[field] = _part_in_words(value, PARTS[field]) if field in PARTS else _in_words(value)
    return told | {name: _in_words(value) for name, value in {**defaults, **method.options}.items()}


def _is_set(experiment: Experiment, name: str, value: str) -> bool:
    defaults = _options_of_method(experiment.method.name)
    return name not in defaults or _in_words(defaults[name]) != value


def _options_of_method(name: str) -> dict[str, Any]:
    # Code of another package is not imported to read a result, which may come from a stranger.
    return options_of("methods", name) if is_ours("methods", name) else {}


def set_options(kind: Kind, part: Part) -> dict[str, Any]:
    """Return the options of a part that differ from their defaults; all of a part of another package."""
    # Code of another package is not imported to read a result, which may come from a stranger.
    defaults = _defaults_of(kind, part)
    return {name: v for name, v in part.options.items() if name not in defaults or plain(defaults[name]) != plain(v)}


def _defaults_of(kind: Kind, part: Part) -> dict[str, Any]:
    """Return the defaults of a part's options, and of those of the stream that it is made of."""
    own = options_of(kind, part.name) if is_ours(kind, part.name) else {}
    base = part.options.get("of") if kind == "streams" else None
    return {**_defaults_of(kind, Part(name=base)), **own} if isinstance(base, str) else own


def _parts(experiment: Experiment) -> Iterator[tuple[str, Kind, Part]]:
    return ((field, kind, getattr(experiment, field)) for field, kind in PARTS.items())


def _part_in_words(part: Part, kind: Kind) -> str:
    """Return a part as 'centroid(epsilon=4)', with the options that differ from their defaults."""
    options = {name: _in_words(value) for name, value in set_options(kind, part).items()}
    return f"{part.name}({_listed(options)})" if options else part.name


def _in_words(value: Any) -> str:
    if value is None:
        return "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(plain(value))


def described(difference: tuple[str, tuple[str, str]]) -> str:
    """Return a difference as 'replay_size=32 instead of 256'."""
    name, (mine, other) = difference
    return f"{name.removeprefix('method.')}={mine} instead of {other}"


def decided(experiment: Experiment) -> dict[str, str]:
    """Return by name all settings that decide the numbers but the seed."""
    return _in_texts(experiment.model_dump(mode="json", exclude=UNLIKE_ANYWAY))


def plain(value: Any) -> Any:
    """Return a value as a file has it: 8.0 is 8 there, and a tuple a list."""
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_texts(settings: dict[str, Any]) -> dict[str, str]:
    return {name: "none" if value is None else str(plain(value)) for name, value in flat(settings).items()}
