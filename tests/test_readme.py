"""The README's example runs as it stands."""

import re
from pathlib import Path

import pytest

from holdfast.build import names

ROOT = Path(__file__).parents[1]
README, METHODS = ROOT / "README.md", ROOT / "docs" / "methods.md"


def test_the_readmes_example_runs_and_has_learned_its_stream(tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(example.strip().splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    exec(compile("import torch; torch.manual_seed(0)\n" + example, "README.md", "exec"), scope)
    learner, x, y = scope["learner"], scope["x"], scope["y"]
    assert (learner.predict(x) == y).float().mean() >= 0.9
    assert str(learner.predict(x)) in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["methods", "selections", "retrievals", "streams", "backbones"])
def test_the_readmes_table_names_all_there_is(kind):
    (row,) = re.findall(rf"^\| {kind} \|(.*)\|$", README.read_text(), flags=re.MULTILINE)
    for name in names(kind):
        assert f"`{name}`" in row


@pytest.mark.parametrize("kind", ["methods", "selections"])
def test_the_docs_have_a_row_for_every_method_and_selection(kind):
    rows = re.findall(r"^\| `(\w+)`", METHODS.read_text(), flags=re.MULTILINE)
    assert set(names(kind)) <= set(rows)


def test_every_method_says_what_it_was_checked_against():
    methods = METHODS.read_text().partition("| idea |")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in methods.splitlines() if line.startswith("| `")]
    assert {cells[-2].strip() for cells in rows} == {"code", "paper", "memory"}
