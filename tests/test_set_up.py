"""The set-up of `make` installs the versions of constraints.txt and no others."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines if line[:1] != "#")}


def required_by(package: str) -> list[str]:
    """Return the requirements of a package; none of one in an optional extra that is not installed."""
    try:
        return requires(package) or []
    except PackageNotFoundError:
        return []


def needed() -> set[str]:
    """Everything that an installation for development needs, and the optional extras by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    waiting = [Requirement(each) for each in project["dependencies"] + [r for extra in extras.values() for r in extra]]
    found: set[tuple[str, str]] = set()  # packages, each with an extra of its own or none
    while waiting:
        requirement = waiting.pop()
        name = normal(requirement.name)
        for extra in ("", *requirement.extras):
            if name == "holdfast" or (name, extra) in found:
                continue
            found.add((name, extra))
            below = [Requirement(each) for each in required_by(requirement.name)]
            waiting += [each for each in below if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def test_every_package_that_is_needed_has_a_pinned_version_pip_and_setuptools_too():
    assert needed() | {"pip", "setuptools", "hatchling", "editables"} <= pinned().keys()


def test_pip_is_replaced_before_it_installs_anything():
    commands = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-m pip install" in line]
    assert commands[0].endswith("-c constraints.txt --upgrade pip setuptools")
    assert all("-c constraints.txt" in command for command in commands)
    assert tuple(map(int, pinned()["pip"].split("."))) >= (25, 3), "older ones have known holes"


def test_pillow_is_one_without_known_holes():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pillow,) = (Requirement(each) for each in project["dependencies"] if each.startswith("pillow"))
    assert "10.2" not in pillow.specifier
    assert pinned()["pillow"] in pillow.specifier
