"""Every example runs, and prints what it says."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = {
    "byte_budget.py": r"33\d samples of 50 classes in memory\n5 to 7 samples a class",
    "learn_a_stream.py": r"classes \[0, 1\]: (8|9)\d % right\n(.*\n)*classes \[4, 5\]: (8|9)\d % right",
    "export_model.py": r"inputs: float32 \[5\]\nclasses: \['left', 'right', 'right'\]",
    "other_packages.py": r"knows \[0, 1, 2, 3, 4, 5, 6, 7\]\n.*7, 8, 9\], (8|9)\d % right\nRiver: Accuracy: 8\d\.",
    "text_encoder.py": r"(\w+: (9\d|100) % right\n){4}.* is travel",
    "kafka_consumer.py": r"10 records learned, 3 had come before",
    "own_method.py": r"(er +seed \d: A_T .*\n){3}(WeightedReplay +seed \d: A_T .*\n){3}",
    "own_selection.py": r"samples a class in memory: \[\d+, \d+, \d+, \d+\]",
    "own_stream.py": r"after task 3: \d+ %, \d+ %, \d+ %",
    "compare_methods.ipynb": r"er is ahead by \d+\.\d, \d+\.\d points",
    "drift.ipynb": r"finetune \{0: .*\}\ner \{0: .*\}",
}


def test_every_example_is_run_and_listed():
    found = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    assert found == set(PRINTED)
    listed = re.findall(r"^\| \[([\w.]+)\]\(([\w.]+)\)", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE)
    assert {name for name, target in listed if name == target} == found


@pytest.mark.filterwarnings("ignore::holdfast.core.input_watch.InputWarning")  # toy columns are often constant
@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_runs(name, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    if name.endswith(".py"):
        monkeypatch.setattr("sys.argv", [name])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    else:
        scope: dict[str, object] = {}
        for cell in json.loads((EXAMPLES / name).read_text())["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), name, "exec"), scope)
    assert re.search(PRINTED[name], capsys.readouterr().out)


def test_notebooks_are_stored_without_output():
    for path in EXAMPLES.glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            assert not cell.get("outputs"), path.name
