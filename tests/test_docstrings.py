"""Docstrings of functions begin with a verb."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "holdfast"
NO_VERBS = re.compile(
    "The|A|An|All|Any|Each|Every|Both|No|One|Two|Nothing|Everything|Something|"
    "To|As|For|In|Inside|By|From|With|Up|While|This|That|It|Those"
)


def functions(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each function; a property and a context manager may begin with a noun."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kinds = {ast.unparse(decorator) for decorator in node.decorator_list}
            text = ast.get_docstring(node)
            if text and not {"property", "cached_property"} & kinds:
                yield node.name, text


def first_word(text: str) -> str:
    """Return the first word of a docstring behind a shape, as in '(n,) Return the class of each sample'."""
    return re.split(r"\W", re.sub(r"^\([^)]*\) ", "", text))[0]


def test_docstrings_of_functions_begin_with_a_verb():
    no_verb = [
        f"{path.relative_to(SOURCE)}: {name}: {text.splitlines()[0]}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name, text in functions(path)
        if NO_VERBS.fullmatch(first := first_word(text)) or not first.istitle()
    ]
    assert no_verb == []


def test_help_texts_begin_with_a_noun_or_a_verb():
    calls = [
        (path, node)
        for path in sorted((SOURCE / "cli").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Option", "typer.Argument")
    ]
    texts = [
        (path.name, ast.literal_eval(keyword.value))
        for path, call in calls
        for keyword in call.keywords
        if keyword.arg == "help" and isinstance(keyword.value, ast.Constant)
    ]
    assert len(texts) > 50
    wrong = "Of|With|As|That|Where|What|Until|To|Only|Whether|How|When|It|This"
    assert [(name, text) for name, text in texts if re.match(rf"(?:{wrong})\b", text)] == []
