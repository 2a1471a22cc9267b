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
# Files with functions whose docstrings do not begin with a verb yet.
TO_MEND_VERBS = {
    "adapters/scikit_learn.py",
    "core/augment.py",
    "core/average.py",
    "core/classes.py",
    "core/labels.py",
    "core/model.py",
    "core/optimizers.py",
    "core/standardise.py",
    "core/state.py",
    "core/sums.py",
    "experiments/differences.py",
    "experiments/durations.py",
    "experiments/experiment.py",
    "experiments/probes/record.py",
    "experiments/protocol.py",
    "experiments/recipes.py",
    "experiments/remake.py",
    "experiments/results.py",
    "experiments/run.py",
    "experiments/stored_json.py",
    "experiments/sweep.py",
    "experiments/tables.py",
    "export/networks.py",
    "memory/selection/centroid.py",
    "memory/storage.py",
    "methods/_anchored.py",
    "methods/_base.py",
    "methods/_stored_means.py",
    "methods/_sums.py",
    "methods/drr.py",
    "methods/gem.py",
    "methods/hedge.py",
    "methods/knn.py",
    "methods/scr.py",
    "methods/wrappers/mkd.py",
    "methods/wrappers/ncm.py",
    "report/page_data.py",
    "report/recorded.py",
    "report/rendering.py",
    "report/tables.py",
    "saved.py",
    "serve/app.py",
    "serve/hosted.py",
    "tables.py",
}


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
        if str(path.relative_to(SOURCE)) not in TO_MEND_VERBS
        for name, text in functions(path)
        if NO_VERBS.fullmatch(first := first_word(text)) or not first.istitle()
    ]
    assert no_verb == []
