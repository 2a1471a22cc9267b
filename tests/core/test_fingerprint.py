"""The fingerprint follows what a program does, and nothing else."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core.fingerprint import changed_modules, digest_of, fingerprint

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"

SMALL = {
    "p": "from p.method import Method\n",
    "p.method": '''"""A method."""
import math
from p.loss import loss
from p import model


class Method:
    """It learns."""

    rate: float = 0.1

    def observe(self, x: float) -> float:
        """Learn x."""
        y: float = model.forward(x)  # a comment
        return math.sqrt(loss(y)) + 2 * self.rate
''',
    "p.loss": "def loss(y):\n    from p.margins import WIDTH\n    return y - WIDTH\n",
    "p.margins": "WIDTH = 0.5\n",
    "p.model": "def forward(x):\n    return x\n",
    "p.other": "from p.model import forward\n\nRATE = 3\n",
}


def taken(**changed: str) -> dict[str, str]:
    sources = SMALL | {f"p.{name}": source for name, source in changed.items()}
    return fingerprint(sources, ["p.method"])


def test_it_has_what_the_root_reaches_by_imports_and_nothing_else():
    assert list(taken()) == ["loss", "margins", "method", "model"]
    assert taken(other="RATE = 4") == taken()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A method."""', ""),
        ('        """Learn x."""\n', "        # Learn a number.\n\n"),
        ('    """It learns."""\n', '    """It learns\n    much."""\n'),
        ("  # a comment", ""),
        ("x: float) -> float", "x)"),
        ("y: float =", "y ="),
        ("import math\nfrom p.loss import loss\n", "from p.loss import loss\nimport math\n"),
        ("2 * self.rate", "(2) * (\n            self.rate\n        )"),
        ("import math\n", "from __future__ import annotations\nimport math\n"),
        ("from p import model\n", "from p import model\nif TYPE_CHECKING:\n    from p.other import RATE\n"),
    ],
)
def test_what_is_only_read_by_people_does_not_count(old: str, new: str):
    source = SMALL["p.method"]
    assert old in source
    assert taken(method=source.replace(old, new)) == taken()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2 * self.rate", "3 * self.rate"),
        ("2 * self.rate", "2.0 * self.rate"),
        ("2 * self.rate", "2 + self.rate"),
        ("loss(y))", "loss(x))"),
        ("rate: float = 0.1", "rate: float = 0.2"),
        ("rate: float = 0.1", "rate: ClassVar[float] = 0.1"),
        ("math.sqrt", "math.cbrt"),
        ("from p import model", "from p import other as model"),
        ("return math", "return -math"),
    ],
)
def test_whatever_is_computed_otherwise_changes_the_module_alone(old: str, new: str):
    source = SMALL["p.method"]
    assert old in source
    other = taken(method=source.replace(old, new))
    assert [name for name in changed_modules(taken(), other) if name != "other"] == ["method"]
    assert digest_of(other) != digest_of(taken())


def test_a_change_below_an_import_inside_a_function_counts():
    assert changed_modules(taken(), taken(margins="WIDTH = 0.25\n")) == ["margins"]


def test_of_a_module_named_by_a_definition_only_what_that_uses_counts():
    source = "import p.model\nfrom p.loss import loss\nfrom p.other import RATE\n{}"
    body = "SIZE = 3\ndef helper(x: RATE):\n    return SIZE * loss(x)\ndef wanted():\n    return helper(1)\n"
    beside = "def shown():\n    return RATE, p.model\n"

    def of(text: str) -> dict[str, str]:
        return fingerprint(SMALL | {"p.run": source.format(text)}, ["p.run:wanted"])

    first = of(body + beside)
    assert list(first) == ["loss", "margins", "run"]
    assert of(body + beside.replace("RATE, p", "p")) == first
    assert of(beside + body) == first
    assert changed_modules(of(body.replace("SIZE = 3", "SIZE = 4") + beside), first) == ["run"]
    assert changed_modules(of(body + beside + "SIZE += 1\n"), first) == ["run"]
    assert changed_modules(of(body + beside + "print(SIZE)\n"), first) == ["run"]


def test_a_definition_or_a_module_that_is_not_there_is_named():
    with pytest.raises(LookupError, match=r"no module p\.mehtod"):
        fingerprint(SMALL, ["p.mehtod"])
    with pytest.raises(LookupError, match=r"no Mehtod in p\.method"):
        fingerprint(SMALL, ["p.method:Mehtod"])


def test_leaves_count_but_are_not_followed_and_what_is_apart_does_not_count():
    assert list(fingerprint(SMALL, ["p.method"], leaves=["p.loss"])) == ["loss", "method", "model"]
    assert list(fingerprint(SMALL, ["p.method"], apart=["p.loss"])) == ["method", "model"]


def test_a_dictionary_that_is_unpacked_is_not_one_with_the_key_none():
    assert taken(model="x = {**y}") != taken(model="x = {None: y}")


PROGRAM = {
    ".".join(("holdfast", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path.read_text()
    for path in SOURCE.rglob("*.py")
}
ROOTS = ["holdfast.methods.drr", "holdfast.memory.selection.centroid", "holdfast.streams.split_digits"]


class Mutated(ast.NodeTransformer):
    """Changes the n-th literal or operator of a program."""

    def __init__(self, n: int) -> None:
        self.left = n

    def _is_due(self) -> bool:
        self.left -= 1
        return self.left == -1

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, int | float) and self._is_due():
            return ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if self._is_due():
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return node  # its annotation is not all computed

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(each) for each in node.body]
        return node


def test_any_number_or_operator_changed_in_a_module_that_is_reached_changes_it_and_no_other():
    first = fingerprint(PROGRAM, ROOTS)
    draw = random.Random(0)
    n_mutations = 0
    for name in draw.sample(sorted(first), 12):
        full = f"holdfast.{name}"
        for n in draw.sample(range(30), 3):
            mutated = ast.unparse(Mutated(n).visit(ast.parse(PROGRAM[full])))
            if mutated == ast.unparse(ast.parse(PROGRAM[full])):
                continue  # it has fewer
            n_mutations += 1
            assert changed_modules(first, fingerprint(PROGRAM | {full: mutated}, ROOTS)) == [name]
    assert n_mutations > 15


def test_the_whole_program_written_anew_without_comments_and_docstrings_is_the_same():
    class Bare(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.AST:
            is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            return ast.Pass() if is_text else node

    bare = {name: ast.unparse(Bare().visit(ast.parse(source))) for name, source in PROGRAM.items()}
    assert fingerprint(bare, ROOTS) == fingerprint(PROGRAM, ROOTS)


def test_nothing_changed_in_what_is_not_reached_changes_it():
    first = fingerprint(PROGRAM, ROOTS)
    others = {name: "x = 1" for name in PROGRAM if name.removeprefix("holdfast.") not in first}
    assert "holdfast.methods.er" in others
    assert "holdfast.streams.split_cub" in others
    # Packages are reached, and empty.
    others = {name: source for name, source in others.items() if PROGRAM[name]}
    assert fingerprint(PROGRAM | others, ROOTS) == first


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_it_does_not_depend_on_the_process(hash_seed: str):
    path = SOURCE / "core" / "fingerprint.py"  # alone, since importing the package takes seconds
    code = f"import runpy; print(runpy.run_path({str(path)!r})['fingerprint']({SMALL!r}, ['p.method']))"
    command = [sys.executable, "-c", code]
    environment = {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ast.literal_eval(done.stdout) == taken()
