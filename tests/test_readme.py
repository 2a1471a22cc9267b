"""The README's example runs as it stands."""

import re
from pathlib import Path

import pytest

from holdfast.build import names

ROOT = Path(__file__).parents[1]
README, METHODS, RESULTS = ROOT / "README.md", ROOT / "docs" / "methods.md", ROOT / "results"


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


@pytest.mark.parametrize(("benchmark", "place"), [("permuted_mnist", 0), ("split_cifar100", 1)])
def test_the_costs_in_the_docs_are_those_stored(benchmark, place):
    stored = (RESULTS / f"cost_{benchmark}.md").read_text()
    lines = [line.split("|") for line in METHODS.read_text().splitlines() if line.startswith("| `")]
    for row, cost in re.findall(r"^\| (\w+) \| ([\d.]+) \|$", stored, flags=re.MULTILINE):
        if row in names("methods"):
            told = next(cells[5] for cells in lines if cells[1].strip().startswith(f"`{row}`"))
            assert told.split(";")[0].split("/")[place].strip() == cost


def test_the_costs_of_selections_in_the_docs_are_those_stored():
    costs = re.findall(r"^\| (\w+) \| ([\d.]+) \|$", (RESULTS / "cost_sampling.md").read_text(), flags=re.MULTILINE)
    assert costs
    for selection, cost in costs:
        assert re.search(rf"^\| `{selection}` \|.*\| {cost} \|$", METHODS.read_text(), flags=re.MULTILINE)


def test_the_memory_in_the_docs_is_what_is_stored():
    _, table = (RESULTS / "memory_split_cifar100.md").read_text().split("\n\n")
    assert table.strip() in METHODS.read_text()


def test_how_often_stored_scores_are_right_is_told_as_stored():
    (share,) = re.findall(r"^([\d.]+)% of", (RESULTS / "der_stored_scores.txt").read_text())
    assert f"for {float(share):.0f} % of what is stored" in " ".join(METHODS.read_text().split())
