"""The probes of a run: found by name, kept together in its checkpoint, and missed where a result lacks one."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import holdfast.experiments.probes as folder
from holdfast.core.batch import Batch
from holdfast.core.fingerprint import Fingerprint, changed_modules
from holdfast.core.state import State, Stateful
from holdfast.experiments.foreign import code_behind
from holdfast.experiments.probes._base import Moment, Plan, Probe
from holdfast.experiments.probes._logger import Logger
from holdfast.experiments.probes.record import record_in
from holdfast.experiments.results import Result
from holdfast.learner import Learner
from holdfast.parts import Unknown, check_name, foreign_class, public_class
from holdfast.settings import Part, checked_options
from holdfast.streams._base import Task

RECORDING = "record"  # the probe that --record asks for
EVERY_RUN = ("timing", "accuracy", "drift", "footprint", "cost")  # has them without being asked
OWN_KEY = frozenset({"cost"})  # probes of every run whose parts stand among those of others


def probe_names() -> list[str]:
    """Return the names of all probes of the package: their files."""
    return list(_files())


@cache
def _files() -> tuple[str, ...]:
    return tuple(sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if module.name[0] != "_"))


def find_probe(name: str) -> type[Any]:
    """Return the probe in the file `name`, or the class of another package named 'package.module:Class'."""
    if ":" in name:
        return foreign_class(name, Probe, among="the probes")
    check_name(name, probe_names(), among="the probes")
    return public_class(importlib.import_module(f"{folder.__name__}.{name}"), Probe)


def make_probe(part: Part) -> Probe:
    """Return a new probe with the options of `part`; Unknown if one does not exist or has a wrong value."""
    found = find_probe(part.name)
    probe: Probe = found(**checked_options(found, part))
    return probe


def parse_probes(texts: Sequence[str]) -> tuple[Part, ...]:
    """Return the probes written as 'curve', 'curve.every=10' or 'my_module:Mine'.

    Example:
        >>> parse_probes(["curve.every=10", "curve.fraction=0.5", "record"])
        (Part(name='curve', options={'every': 10, 'fraction': 0.5}), Part(name='record', options={}))
    """
    options: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        option = ""
        if separator:
            name, dot, option = name.rpartition(".")
            if not dot or not option:
                raise Unknown(f"'{text}' is no option of a probe: write name.option=value, as in curve.every=10")
        options.setdefault(name, {})
        if option:
            options[name][option] = _value(value)
    return tuple(Part(name=name, options=given) for name, given in options.items())


def parse_logs(texts: Sequence[str]) -> tuple[Part, ...]:
    """Return the loggers written as 'tensorboard:DIR', 'mlflow:URI', 'wandb' or 'wandb:PROJECT'.

    Example:
        >>> parse_logs(["tensorboard:logs"])
        (Part(name='tensorboard', options={'to': 'logs'}),)
    """
    loggers = [name for name in probe_names() if issubclass(find_probe(name), Logger)]
    parts = []
    for text in texts:
        name, separator, to = text.partition(":")
        check_name(name, loggers, among="the loggers")
        if not to and (separator or find_probe(name).needs_place):
            raise Unknown(f"'{text}' does not say where the log goes: write {name}:{find_probe(name).place}")
        parts.append(Part(name=name, options={"to": to} if to else {}))
    return tuple(parts)


def wanted_probes(probes: Sequence[Part], *, record: bool) -> tuple[Part, ...]:
    """Return the probes that a run is asked for, `record` among them where it is wanted."""
    return (*probes, Part(name=RECORDING)) if record and all(p.name != RECORDING for p in probes) else tuple(probes)


def lacking(result: Result, folder: Path, wanted: Sequence[Part]) -> list[str]:
    """Return the options of the command line that ask for what a finished run does not have."""
    return [as_option(part) for part in wanted if not _has(result, folder, part)]


def _has(result: Result, folder: Path, part: Part) -> bool:
    if part.name in EVERY_RUN:
        return True
    if part.name == RECORDING:
        return record_in(folder) is not None
    found, probe = result.probes.get(part.name), make_probe(part)
    return found is not None and (found.get("options", {}), found.get("code", {})) == (
        probe.options(),
        _code_of(part.name, probe),
    )


def _code_of(name: str, probe: Probe) -> Fingerprint:
    """Return by file a hash of the code of a probe of another package; nothing of one of this package."""
    return code_behind(name, type(probe)) if ":" in name else {}


def as_option(part: Part) -> str:
    """Return the options of the command line that ask for a probe.

    Example:
        >>> as_option(Part(name="curve", options={"every": 10}))
        '--probe curve.every=10'
    """
    if part.name == RECORDING:
        return "--record"
    if ":" not in part.name and part.name in probe_names() and issubclass(find_probe(part.name), Logger):
        return f"--log {part.name}"
    options = [f"--probe {part.name}.{name}={json.dumps(value)}" for name, value in part.options.items()]
    return " ".join(options) or f"--probe {part.name}"


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


class Probes(Stateful):
    """The probes of one run, by name, in the order in which they are asked.

    Args:
        always: those of every run.
        wanted: those that were asked for.
    """

    def __init__(self, always: dict[str, Probe], wanted: Sequence[Part] = ()) -> None:
        self.always = always
        asked = {part.name: make_probe(part) for part in wanted if part.name not in always}
        self.by_name = _in_order(always | asked)

        self.around: list[Probe] = []  # that look while the learner learns

    def __iter__(self) -> Iterator[Probe]:
        return iter(self.by_name.values())

    def begin(self, plan: Plan) -> None:
        """Let all of them take up the run."""
        self.around = [each for each in self if type(each).during_step is not Probe.during_step]
        self.plan = plan
        for probe in self:
            probe.begin(plan)

    @contextmanager
    def during_step(self, step: int) -> Iterator[None]:
        """Context manager: the learner learns batch number `step` inside, and all probes may look how."""
        with ExitStack() as stack:
            for probe in self.around:
                stack.enter_context(probe.during_step(step))
            yield

    def before_step(self, learner: Learner, batch: Batch) -> None:
        """Let all of them look before a batch is learned."""
        for probe in self:
            probe.before_step(learner, batch)

    def after_step(self, learner: Learner, moment: Moment) -> None:
        """Let all of them look after a batch was learned."""
        self.plan.news.clear()
        for probe in self:
            probe.after_step(learner, moment)

    def after_task(self, learner: Learner, tests: Sequence[Task]) -> None:
        """Let all of them look after a task."""
        self.plan.news.clear()
        for probe in self:
            probe.after_task(learner, tests)

    def results(self) -> dict[str, Any]:
        """Return the fields of a result that the probes of every run fill, and in `probes` the parts of the others."""
        fields: dict[str, Any] = {}
        parts: dict[str, Any] = {}
        for name, probe in self.by_name.items():
            if name in self.always and name not in OWN_KEY:
                fields |= probe.result()
            elif name != RECORDING:
                stated = {"options": probe.options(), "code": _code_of(name, probe)}
                parts[name] = {**{key: value for key, value in stated.items() if value}, **probe.result()}
        return fields | {"probes": parts}

    def state_dict(self) -> State:
        return {
            name: {"options": probe.options(), "code": _code_of(name, probe), "state": probe.state_dict()}
            for name, probe in self.by_name.items()
        }

    def changed_code(self, state: State) -> list[str]:
        """Return the files of other packages that are not what they were when the state was saved."""
        saved = {} if not isinstance(state, dict) else state
        code = {name: each["code"] for name, each in saved.items() if isinstance(each, dict) and "code" in each}
        now = {name: _code_of(name, probe) for name, probe in self.by_name.items() if isinstance(code.get(name), dict)}
        return [file for name, each in now.items() for file in changed_modules(code[name], each)]

    def load_state_dict(self, state: State) -> None:
        """Restore exactly these probes; ValueError if the state is of others."""
        if not isinstance(state, dict) or state.keys() != self.by_name.keys():
            raise ValueError(f"the saved state is not of the probes {', '.join(self.by_name)}")
        for name, probe in self.by_name.items():
            probe.load_state_dict(state[name]["state"])

    def take_up(self, state: State, *, n_steps: int, n_tasks: int) -> list[str]:
        """Go on with the saved probes, whatever is wanted now; returns what the user has to know, a sentence each.

        A probe that the run was begun with goes on. Code of another package is not imported for it. Such a probe
        resumes only if it is requested again, and a logger only if its target is given again. A probe that was not
        there from the beginning is left out once it has missed something.

        Args:
            n_steps, n_tasks: that were learned when the state was saved.
        """
        if not isinstance(state, dict) or not all(name in state for name in self.always):
            raise ValueError("the saved state lacks probes that every run has: --fresh begins anew")
        told = []
        probes: dict[str, Probe] = {}
        for name, probe in self.by_name.items():
            part = Part(name=name, options=probe.options())
            if name not in state:
                if {"steps": n_steps, "tasks": n_tasks, "nothing": 0}[probe.follows]:
                    told.append(f"the run was begun without {as_option(part)} and leaves none: --fresh begins anew")
                    continue
            elif state[name]["options"] != probe.options():
                saved = Part(name=name, options=state[name]["options"])
                probe = make_probe(saved)
                told.append(f"the run was begun with {as_option(saved)} and goes on so: --fresh begins anew")
            probes[name] = probe
        for name in state:
            if name in self.by_name:
                continue
            if name in probe_names() and not issubclass(find_probe(name), Logger):
                probes[name] = make_probe(Part(name=name, options=state[name]["options"]))
            else:
                told.append(f"the run was begun with the probe {name}, which ends here: name it to go on with it")
        for name, probe in probes.items():
            if name in state:
                probe.load_state_dict(state[name]["state"])
        self.by_name = _in_order(probes)
        return told


def _in_order(probes: dict[str, Probe]) -> dict[str, Probe]:
    """Return the same with loggers last, which send what the others have measured."""
    return dict(sorted(probes.items(), key=lambda item: isinstance(item[1], Logger)))
