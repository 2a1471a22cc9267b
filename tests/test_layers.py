"""Imports point one way, and importing the package costs little more than importing torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SUPPORT = "tests.support."
SOURCE = TESTS.parent / "src" / "holdfast"

# Each part may import itself and the parts named here, directly or through them.
ALLOWED = {
    "core": set(),
    "losses": set(),
    "backbones": set(),
    "memory": {"core"},
    "methods": {"memory", "losses", "core"},
    "data": {"core"},
    "streams": {"data", "core"},
    "parts": {"methods", "memory", "streams"},
    "settings": {"parts", "methods", "memory", "streams", "core"},
    "build": {"settings", "parts", "methods", "memory", "streams", "core"},
    "guard": {"methods", "core"},
    "practice": {"guard", "methods", "memory", "core"},
    "saved": {"build", "settings", "parts", "methods", "memory", "core"},
    "export": {"methods", "memory", "core"},
    "ledger": {"methods", "memory", "core"},
    "predictor": {"export", "practice", "settings", "methods", "core"},
    "learning": {"practice", "predictor", "saved", "build", "settings", "methods", "memory", "core"},
    "merging": {"learning", "core"},
    "keeping": {"learning", "guard", "ledger", "practice", "predictor", "saved", "settings", "core"},
    "watching": {"learning", "guard", "practice", "core"},
    "learner": {"keeping", "merging", "watching", "learning", "practice", "build", "settings", "core"},
    "loading": {"learner", "saved", "core"},
    "drift_watch": {"learner", "core"},
    "experiments": {"learner", "build", "settings", "parts", "methods", "memory", "streams", "data", "core"},
    "checks": {
        "experiments",
        "loading",
        "learner",
        "build",
        "settings",
        "parts",
        "methods",
        "memory",
        "streams",
        "core",
    },
    "report": {"experiments", "settings", "parts", "core"},
    "columns": {"core"},
    "tables": {"columns", "loading", "learner", "data", "core"},
    "adapters": {
        "tables",
        "loading",
        "learner",
        "predictor",
        "build",
        "settings",
        "parts",
        "methods",
        "memory",
        "losses",
        "core",
    },
    "serve": {
        "experiments",
        "tables",
        "loading",
        "learner",
        "predictor",
        "build",
        "parts",
        "methods",
        "memory",
        "core",
        "holdfast",
    },
    "cli": {
        "build",
        "serve",
        "memory",
        "adapters",
        "checks",
        "columns",
        "tables",
        "report",
        "experiments",
        "settings",
        "parts",
        "methods",
        "streams",
        "data",
        "core",
        "holdfast",
    },
    "__main__": {"cli"},
    "holdfast": {  # __init__.py
        "adapters",
        "checks",
        "drift_watch",
        "loading",
        "learner",
        "predictor",
        "tables",
        "experiments",
        "backbones",
        "methods",
        "memory",
        "streams",
        "core",
    },
}
FILES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return "holdfast" if first == "__init__.py" else first.removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [node.module or ""]
            if node.module == "holdfast":  # from holdfast import x: a part, or something of __init__.py
                names = [f"holdfast.{a.name}" if (SOURCE / f"{a.name}.py").exists() else "holdfast" for a in node.names]
        for name in names:
            if name.split(".")[0] == "holdfast":
                parts.add(name.split(".")[1] if "." in name else "holdfast")
    return parts


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_import_points_upwards(path):
    part = part_of(path)
    assert imported_parts(path) - {part} <= ALLOWED[part]


def test_every_part_has_its_place():
    assert {part_of(path) for path in FILES} <= set(ALLOWED)


def test_tests_import_from_support_and_never_from_each_other():
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = ["." * node.level + (node.module or "")]
            found += [
                f"{path.relative_to(TESTS)}: {module}"
                for module in modules
                if module.startswith(".") or (module.split(".")[0] == "tests" and not f"{module}.".startswith(SUPPORT))
            ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import holdfast", ["torch", "numpy"]),
        (
            "from holdfast import Learner",
            ["matplotlib", "sklearn", "scipy", "ray", "pandas", "openTSNE", "typer", "PIL"],
        ),
        (
            "import torch, holdfast; holdfast.Learner('drr').observe(torch.ones(1, 2), torch.tensor([0]))",
            ["torch._dynamo", "sympy"],  # torch's compiler, which takes longer to import than torch itself
        ),
    ],
)
def test_what_everyone_does_imports_nothing_heavy(code, heavy):
    code += f"; import sys; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
