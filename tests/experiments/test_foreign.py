"""Code of another package is a part of what a run is: edited, it is another run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.checkpoint import read_checkpoint
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.foreign import foreign_code
from holdfast.experiments.remake import remake
from holdfast.experiments.results import Refused, ResultStore
from holdfast.experiments.run import CHECKPOINT, Interrupted, run
from holdfast.settings import Part
from tests.support.experiments import toy_experiment

METHOD = """
from dataclasses import dataclass
from holdfast.methods.er import ER
{imports}

@dataclass(kw_only=True, eq=False)
class Mine(ER):
    'My own.'

    def observe(self, batch):
        {body}
        return super().observe(batch)
"""
PROBE = """
from dataclasses import dataclass
from holdfast.experiments.probes._base import Probe

@dataclass(kw_only=True, eq=False)
class Mine(Probe):
    'My own.'

    def result(self):
        return {{"number": {number}}}
"""


class Code:
    """A folder of modules that are imported anew after each change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: set[str] = set()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.names.add(Path(name).parts[0].removesuffix(".py"))
        self.forget()

    def forget(self) -> None:
        for name in [each for each in sys.modules if each.partition(".")[0] in self.names]:
            del sys.modules[name]
        importlib.invalidate_caches()


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Code]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions within a second are told apart by no time
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    code = Code(tmp_path / "code")
    yield code
    code.forget()


def method(body: str = "pass", imports: str = "") -> str:
    return METHOD.format(body=body, imports=imports)


def hashes(name: str = "my_method:Mine") -> dict[str, str]:
    return foreign_code([("methods", name)])


def test_an_edited_method_is_run_again_and_both_results_are_kept(tmp_path: Path, code: Code):
    store = ResultStore(tmp_path / "runs")
    code.write("my_method.py", method())
    first = run(toy_experiment(method="my_method:Mine"), store)
    assert run(toy_experiment(method="my_method:Mine"), store) == first
    code.write("my_method.py", method("batch = batch[:1]"))
    edited = toy_experiment(method="my_method:Mine")
    assert store.find(edited) is None
    second = run(edited, store)
    assert second.accuracies != first.accuracies
    assert len(store.results()) == 2
    assert first.experiment.kind != second.experiment.kind


def test_comments_and_layout_do_not_count(code: Code):
    code.write("my_method.py", method())
    before = hashes()
    code.write("my_method.py", method().replace("'My own.'", "'Mine.'  # a comment"))
    assert hashes() == before


@pytest.mark.parametrize("kind", ["beside", "package", "relative", "later", "in a package beside", "star"])
def test_what_a_method_imports_from_beside_it_counts_too(code: Code, kind: str):
    name, helper, imports, body = {
        "beside": ("my_method.py", "my_helper.py", "import my_helper", "pass"),
        "package": ("my_package/my_method.py", "my_package/helper.py", "from my_package.helper import x", "pass"),
        "relative": ("my_package/inner/my_method.py", "my_package/helper.py", "from ..helper import x", "pass"),
        "later": ("my_method.py", "my_helper.py", "", "import my_helper"),
        "in a package beside": ("my_method.py", "my_tools/deep/helper.py", "from my_tools.deep import helper", "pass"),
        "star": ("my_method.py", "my_helper.py", "from my_helper import *", "pass"),
    }[kind]
    for folder in {*Path(name).parents, *Path(helper).parents} - {Path()}:
        code.write(str(folder / "__init__.py"), "")
    code.write(helper, "x = 1\n")
    code.write(name, method(body, imports))
    named = f"{name.removesuffix('.py').replace('/', '.')}:Mine"
    before = hashes(named)
    assert {name, helper} <= before.keys()
    assert not any(path.startswith(("holdfast", "torch", "dataclasses")) for path in before)
    code.write(helper, "x = 2\n")
    assert [path for path, digest in hashes(named).items() if before[path] != digest] == [helper]


def test_the_init_of_its_package_counts(code: Code):
    code.write("my_package/__init__.py", "from .my_method import Mine\n")
    code.write("my_package/my_method.py", method())
    before = hashes("my_package:Mine")
    assert before.keys() == {"my_package/__init__.py", "my_package/my_method.py"}
    code.write("my_package/__init__.py", "from .my_method import Mine\nMine.replay_size = 3\n")
    assert hashes("my_package:Mine")["my_package/__init__.py"] != before["my_package/__init__.py"]


def stopped(store: ResultStore, **how: object) -> None:
    asked = iter(range(1, 20))
    with pytest.raises(Interrupted):
        run(toy_experiment(method="my_method:Mine"), store, stop=lambda: next(asked) == 7, **how)  # type: ignore[arg-type]


def edited_after_it_was_stopped(folder: Path, code: Code) -> tuple[ResultStore, Experiment]:
    """A store with a run that was stopped, and the experiment that its method, edited since, makes of it."""
    store = ResultStore(folder / "runs")
    code.write("my_method.py", method())
    stopped(store)
    code.write("my_method.py", method("batch = batch[:1]"))
    return store, toy_experiment(method="my_method:Mine")


def test_a_run_stopped_with_other_source_is_refused_in_a_sentence(tmp_path: Path, code: Code):
    store, edited = edited_after_it_was_stopped(tmp_path, code)
    said = r"made by other code \(my_method\.py differs\): --fresh begins anew, --continue-anyway goes on"
    for _ in range(2):
        with pytest.raises(Refused, match=said):
            run(edited, store)
    assert not store.folder(edited).exists(), "a refused run leaves nothing"
    fresh = run(edited, store, fresh=True)
    assert fresh.continued_across == []
    assert [path.parent for path in store.root.rglob(CHECKPOINT)] == [store.folder(edited)]


def test_continued_anyway_the_result_says_so(tmp_path: Path, code: Code):
    store, edited = edited_after_it_was_stopped(tmp_path, code)
    result = run(edited, store, continue_anyway=True)
    (change,) = result.continued_across
    assert (change.step, change.changed) == (7, ["my_method.py"])
    assert result.experiment == edited
    assert read_checkpoint(store.folder(edited) / CHECKPOINT)["digest"] == edited.digest
    assert len(list(store.root.rglob(CHECKPOINT))) == 1
    assert run(edited, store) == result


def test_another_seed_or_a_running_run_is_no_earlier_run_of_it(tmp_path: Path, code: Code):
    store = ResultStore(tmp_path / "runs")
    code.write("my_method.py", method())
    old = toy_experiment(method="my_method:Mine")
    stopped(store)
    code.write("my_method.py", method("batch = batch[:1]"))
    run(toy_experiment(method="my_method:Mine", seed=7), store)
    with store.claimed(old):
        assert run(toy_experiment(method="my_method:Mine"), store).continued_across == []


def test_a_run_whose_code_changed_after_it_was_asked_for_is_refused(tmp_path: Path, code: Code):
    code.write("my_method.py", method())
    asked_for = toy_experiment(method="my_method:Mine")
    code.write("my_method.py", method("batch = batch[:1]"))
    with pytest.raises(ValueError, match=r"has changed since it was asked for: my_method\.py"):
        run(asked_for, ResultStore(tmp_path))


def test_an_edited_probe_is_told_and_its_state_is_not_gone_on_with(tmp_path: Path, code: Code):
    experiment, store, probes = toy_experiment(), ResultStore(tmp_path / "runs"), [Part(name="my_probe:Mine")]
    code.write("my_probe.py", PROBE.format(number=1))
    run(experiment, store, probes=probes)
    code.write("my_probe.py", PROBE.format(number=2))
    with pytest.warns(UserWarning, match=r"was finished without --probe my_probe:Mine: --fresh runs it again"):
        run(experiment, store, probes=probes)
    asked = iter(range(1, 20))
    with pytest.raises(Interrupted):
        run(experiment, store, probes=probes, fresh=True, stop=lambda: next(asked) == 7)
    code.write("my_probe.py", PROBE.format(number=3))
    with pytest.raises(Refused, match=r"my_probe\.py differs"):
        run(experiment, store, probes=probes)
    result = run(experiment, store, probes=probes, continue_anyway=True)
    assert result.probes["my_probe:Mine"]["number"] == 3
    assert result.continued_across[0].changed == ["my_probe.py"]


def test_a_remake_runs_the_code_of_today_and_tells_what_changed(tmp_path: Path, code: Code):
    code.write("my_method.py", method())
    stored = run(toy_experiment(method="my_method:Mine"), ResultStore(tmp_path / "runs"))
    assert remake(stored, tmp_path / "same", trust_code=True).unlike == {}
    code.write("my_method.py", method("batch = batch[:1]"))
    made = remake(stored, tmp_path / "other", trust_code=True)
    assert not made.is_same
    assert made.unlike.keys() == {"my_method.py"}
    code.write("my_method.py", method("step = 1"))
    again = remake(stored.model_copy(update={"code": {"core.model": "0" * 8}}), tmp_path / "again", trust_code=True)
    assert again.is_same
    assert again.shown is None, "the source of the method is another, so nothing follows for our code"
