"""Contract tests for parts of one's own: methods, selections, retrievals, streams, backbones and probes.

    holdfast check my_module:Mine

runs all checks of a class. In a test suite, `checks_of` gives them one by one:

    @pytest.mark.parametrize("check", checks_of("my_module:Mine"), ids=lambda check: check.sentence)
    def test_the_contracts(check, tmp_path):
        check.run(tmp_path)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.checks._base import Check, Failed, Outcome, run_checks
from holdfast.checks.backbones import backbone_checks
from holdfast.checks.memory import retrieval_checks, selection_checks
from holdfast.checks.methods import method_checks
from holdfast.checks.probes import probe_checks
from holdfast.checks.streams import stream_checks
from holdfast.experiments.probes._base import Probe
from holdfast.experiments.probing import probe_names
from holdfast.parts import AROUND, FOLDERS, Frame, Unknown, base_of, foreign_class, names
from holdfast.settings import LearnerSettings, Part

__all__ = ["Check", "Failed", "Frame", "Outcome", "check", "checks_of", "kind_of", "run_checks"]

KINDS = [kind for kind in FOLDERS if kind != "wrappers"]  # a wrapper alone is no part of a learner
SINGULAR = {str(kind): kind.removesuffix("s") for kind in KINDS} | {"probes": "probe"}


def check(name: str, **options: Any) -> list[Outcome]:
    """Run the checks of a part, and return their outcomes.

    Args:
        name: 'package.module:Class', or the name of a part of this package.
        options: as for `checks_of`.

    Example:
        >>> {outcome.outcome for outcome in check("uniform", changes={"setting": "free"})}
        {'passed'}
    """
    return list(run_checks(checks_of(name, **options)))


def checks_of(
    name: str,
    *,
    changes: dict[str, Any] | None = None,
    data: Path | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> Iterator[Check]:
    """Return the checks of a part, to be run one by one.

    Args:
        name: 'package.module:Class', or the name of a part of this package.
        changes: options of the part and, for methods, selections and retrievals, settings of the learner.
        data: the folder of data sets, for a stream.
        input_shape: of one sample, for a backbone.

    Example:
        >>> next(iter(checks_of("er"))).sentence
        'no option is named like an argument of a learner'
    """
    kind = kind_of(name)
    options, settings = _divided(kind, changes or {})
    part = Part(name=name, options=options)
    if kind == "methods":
        return method_checks(part, settings)
    if kind == "selections":
        return selection_checks(part, settings)
    if kind == "retrievals":
        return retrieval_checks(part, settings)
    if kind == "streams":
        return stream_checks(part, data)
    if kind == "backbones":
        return backbone_checks(part, input_shape)
    return probe_checks(part)


def kind_of(name: str) -> str:
    """Return the kind of a part: 'methods', 'selections', 'retrievals', 'streams', 'backbones' or 'probes'.

    Example:
        >>> kind_of("drr"), kind_of("curve")
        ('methods', 'probes')
    """
    if AROUND in name:
        return "methods"
    if ":" in name:
        found = foreign_class(name, object, among="your modules")
        if issubclass(found, base_of("wrappers")):
            raise Unknown(f"{name} is a wrapper: check it around a method, as er{AROUND}{name}")
        bases: list[tuple[str, type]] = [*((kind, base_of(kind)) for kind in KINDS), ("probes", Probe)]
        for kind, base in bases:
            if issubclass(found, base):
                return kind
        known = ", ".join(base.__name__ for _, base in bases)
        raise Unknown(f"{name} is no part: derive it from one of {known}")
    kinds: list[str] = [kind for kind in KINDS if name in names(kind)]
    kinds += ["probes"] * (name in probe_names())
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        raise Unknown(f"'{name}' is one of the {' and of the '.join(kinds)}: name its class as 'package.module:Class'")
    raise Unknown(f"no part is called '{name}': give 'package.module:Class', or a name of 'holdfast list methods'")


def _divided(kind: str, changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide changes into options of the part and settings of the learner; 'method.x' of a method is an option."""
    settings = {}
    options = {}
    for name, value in changes.items():
        own = name.removeprefix(f"{SINGULAR[kind]}.")
        if own == name and name in LearnerSettings.model_fields and kind in ("methods", "selections", "retrievals"):
            settings[name] = value
        else:
            options[own] = value
    return options, settings
