"""Every command is listed with its help, and help and completion come without torch."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

from holdfast import cli
from holdfast.cli.listing import described, rows_of_recipes
from holdfast.experiments.probing import find_probe, probe_names
from holdfast.experiments.recipes import load_recipe, recipe_names
from holdfast.parts import FOLDERS, find, names

HEAVY = ["torch", "numpy", "PIL"]


def after(code: str, **environment: str) -> tuple[str, list[str]]:
    """Run `code`, then return what it printed and which heavy packages it has imported."""
    code += f"\nimport sys; print(); print(*(name for name in {HEAVY} if name in sys.modules))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    printed, _, heavy = done.stdout.removesuffix("\n").rpartition("\n")
    return printed, heavy.split()


def called(*arguments: str, **environment: str) -> tuple[str, list[str]]:
    code = f"""
import sys
sys.argv = ["holdfast", *{arguments}]
from holdfast.cli import main
try:
    main()
except SystemExit:
    pass"""
    return after(code, **environment)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--help"], "Commands"),
        (["-h"], "Commands"),
        (["--version"], "holdfast 0."),
        (["run", "--help"], "--method"),
        (["sweep", "-h"], "--workers"),
        (["list", "methods"], "agem"),
        (["list", "recipes"], "permuted_mnist"),
        (["list", "method"], ""),
    ],
    ids=str,
)
def test_help_version_and_lists_import_no_torch(arguments, told):
    printed, heavy = called(*arguments)
    assert told in printed
    assert heavy == []


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("holdfast rep", {"report"}),
        ("holdfast run --meth", {"--method"}),
        ("holdfast run --method er_", {"er_ace"}),
        ("holdfast compare --methods er,soft", {"er,soft_gem"}),
        ("holdfast run permuted_m", {"permuted_mnist"}),
        ("holdfast list back", {"backbones"}),
        ("holdfast data stat", {"status"}),
    ],
)
def test_a_shell_completes_commands_options_and_names_without_torch(words, offered):
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    printed, heavy = called(_HOLDFAST_COMPLETE="complete_bash", **asked)
    assert offered == set(printed.split())
    assert "torch" not in heavy


def test_importing_the_package_imports_torch_only_when_something_of_it_is_used():
    assert after("import holdfast; assert 'Learner' in dir(holdfast)")[1] == []
    assert "torch" in after("from holdfast import Learner")[1]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_that_is_listed_is_that_of_the_command(name):
    first = (cli.loaded(name).help or "").split("\n\n")[0]
    assert " ".join(first.split()) == cli.COMMANDS[name].help


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_list_says_what_the_docstring_of_each_class_says(kind):
    assert described(kind) == {name: first_paragraph(find(kind, name)) for name in names(kind)}


def test_a_list_of_probes_and_recipes_says_what_loading_them_says():
    assert described("probes") == {name: first_paragraph(find_probe(name)) for name in probe_names()}
    assert rows_of_recipes() == {name: ", ".join(load_recipe(name).rows) for name in recipe_names()}


def test_an_unknown_command_is_answered_with_the_nearest():
    done = subprocess.run([sys.executable, "-m", "holdfast", "repot"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "'report'" in done.stderr


def test_closed_streams_are_no_error():
    command = ["sh", "-c", 'exec "$0" -m holdfast list methods >&- 2>&-', sys.executable]
    assert subprocess.run(command).returncode == 0


def first_paragraph(found: type) -> str:
    return " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())
