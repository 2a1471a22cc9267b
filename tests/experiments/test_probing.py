"""Probes are found by name, go on with their run, and are missed where they are not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.checkpoint import CHECKPOINT, read_checkpoint, write_checkpoint
from holdfast.experiments.probes._base import Moment, Probe
from holdfast.experiments.probing import lacking, make_probe, parse_logs, parse_probes
from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.run import Interrupted, run
from holdfast.learner import Learner
from holdfast.parts import Unknown
from holdfast.settings import Part
from tests.support.experiments import after, toy_experiment

MINE = Part(name=f"{__name__}:Mine")
CURVE = Part(name="curve", options={"every": 6})


def asked_for(result: Result) -> dict[str, Any]:
    """Return the parts of the probes that not every run has."""
    return {name: part for name, part in result.probes.items() if name != "cost"}


@dataclass(kw_only=True, eq=False)
class Mine(Probe):
    """A probe of a user's own."""

    factor: float = 2.0
    losses: list[float] = field(default_factory=list, init=False)

    def after_step(self, learner: Learner, moment: Moment) -> None:
        self.losses.append(self.factor * moment.loss)

    def result(self) -> dict[str, Any]:
        return {"losses": self.losses}


def test_a_probe_of_ones_own_leaves_its_part(tmp_path: Path) -> None:
    losses: list[float] = []

    class Listening:
        def begin(self, facts: dict[str, str], moment: Moment) -> None: ...

        def step(self, moment: Moment) -> None:
            losses.append(3 * moment.loss)

    store = ResultStore(tmp_path)
    mine = parse_probes([f"{MINE.name}.factor=3"])
    result = run(toy_experiment(), store, probes=mine, watcher=Listening())
    code = result.probes[MINE.name]["code"]
    assert f"{__name__.replace('.', '/')}.py" in code
    assert asked_for(result) == {MINE.name: {"options": {"factor": 3}, "code": code, "losses": losses}}
    assert store.find(toy_experiment()) == result


def test_no_probe_changes_what_an_experiment_is(tmp_path: Path) -> None:
    experiment, store = toy_experiment(), ResultStore(tmp_path)
    assert asked_for(run(experiment, store)) == {}
    with pytest.warns(UserWarning, match="was finished without --probe curve.every=6: --fresh runs it again"):
        assert asked_for(run(experiment, store, probes=[CURVE])) == {}
    assert run(experiment, store, probes=[CURVE], fresh=True).probes["curve"]["options"]["every"] == 6


def test_a_part_with_other_options_is_not_the_one_that_is_wanted(tmp_path: Path) -> None:
    result = run(toy_experiment(), ResultStore(tmp_path), probes=[CURVE])
    assert lacking(result, tmp_path, [CURVE]) == []
    assert lacking(result, tmp_path, [Part(name="curve")]) == ["--probe curve"]


def stopped(store: ResultStore, n_steps: int, *probes: Part) -> None:
    with pytest.raises(Interrupted):
        run(toy_experiment(), store, probes=probes, stop=after(n_steps))


def test_a_probe_that_the_run_began_with_goes_on_unnamed(tmp_path: Path) -> None:
    expected = asked_for(run(toy_experiment(), ResultStore(tmp_path / "a"), probes=[CURVE]))
    store = ResultStore(tmp_path / "b")
    stopped(store, 20, CURVE)
    assert asked_for(run(toy_experiment(), store)) == expected
    other = ResultStore(tmp_path / "c")
    stopped(other, 20, CURVE)
    with pytest.warns(UserWarning, match="begun with --probe curve.every=6"):
        assert asked_for(run(toy_experiment(), other, probes=[Part(name="curve", options={"every": 3})])) == expected


def test_a_probe_that_comes_late_is_left_out(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    stopped(store, 3)
    with pytest.warns(UserWarning, match="begun without --probe curve.every=6.*--fresh"):
        assert asked_for(run(toy_experiment(), store, probes=[CURVE])) == {}


def test_code_that_only_a_checkpoint_names_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stranger_of_probing.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    store = ResultStore(tmp_path / "runs")
    stopped(store, 3, MINE)
    path = store.folder(toy_experiment()) / CHECKPOINT
    state = read_checkpoint(path)
    state["probes"]["stranger_of_probing:Probe"] = state["probes"].pop(MINE.name)
    write_checkpoint(path, state)
    with pytest.warns(UserWarning, match="begun with the probe stranger_of_probing:Probe, which ends here"):
        assert asked_for(run(toy_experiment(), store)) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("curv", "did you mean 'curve'"),
        ("curve.evry=3", "did you mean 'every'"),
        ("curve.every=often", "curve.every"),
        ("every=3", "write name.option=value"),
        ("no_such_module_here:Mine", "no 'no_such_module_here:Mine' to import"),
        (f"{__name__}:Path", "derive it from Probe"),
    ],
)
def test_what_does_not_exist_is_named(text: str, said: str) -> None:
    with pytest.raises(Unknown, match=said):
        make_probe(parse_probes([text])[0])


@pytest.mark.parametrize("text", ["curve:x", "tensorboard", "tensorboard:"])
def test_a_log_that_goes_nowhere_is_refused(text: str) -> None:
    with pytest.raises(Unknown):
        parse_logs([text])
