"""The code behind a result is known, and a run does not go on with other code without saying so."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from holdfast.core.checkpoint import read_checkpoint, write_checkpoint
from holdfast.core.fingerprint import changed_modules, digest_of
from holdfast.experiments.code import RUN, code_at, code_of, package_sources, sources_at
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.orders import Order, Outcome, Report, carry_out
from holdfast.experiments.probes._base import Moment
from holdfast.experiments.results import Refused, ResultStore
from holdfast.experiments.run import CHECKPOINT, How, Interrupted, run
from tests.support.experiments import toy_experiment

DIGITS = {"stream": "split_digits", "setting": "class", "selection": "reservoir"}


def digits(**changes: object) -> Experiment:
    return Experiment.model_validate(DIGITS | changes)


def stopped_run(folder: Path, experiment: Experiment, step: int = 7) -> ResultStore:
    store = ResultStore(folder)
    asked = iter(range(1, step + 1))
    with pytest.raises(Interrupted):
        run(experiment, store, stop=lambda: next(asked) == step)
    return store


def as_by_other_code(store: ResultStore, experiment: Experiment, *, known: bool = True) -> dict[str, str]:
    """Make the checkpoint look as if `core.model` had been another; gives the fingerprint in it."""
    path = store.folder(experiment) / CHECKPOINT
    state = read_checkpoint(path)
    state["code"]["core.model"] = "00000000"
    code = state["code"]
    if not known:
        del state["code"], state["continued_across"]  # as it was before fingerprints
    write_checkpoint(path, state)
    return code


def test_the_methods_of_an_experiment_count_and_those_of_others_do_not():
    code = code_of(digits(method="er"))
    for name in ("methods.er", "methods._base", "memory.selection.reservoir", "memory.retrieval.uniform", "build",
                 "backbones.mlp", "streams.split_digits", "streams._digits", "core.model", "core.classes", "learner",
                 "memory.storage", "experiments.run", "experiments.probes.accuracy", "experiments.probes.drift",
                 "experiments.probes.footprint"):  # fmt: skip
        assert name in code
    for name in ("methods.ewc", "losses.contrastive_margin", "memory.selection.centroid", "streams.split_cub"):
        assert name not in code
    assert "losses.contrastive_margin" in code_of(digits(method="drr"))


def test_what_prints_stores_or_shows_does_not_count():
    names = {name.partition(".")[0] for name in code_of(digits())}
    assert not names & {"cli", "report"}
    apart = {"results", "facts", "probing", "probes.record", "probes.timing"}
    assert not {f"experiments.{name}" for name in apart} & code_of(digits()).keys()


def test_joint_counts_with_the_stream_that_it_joins():
    code = code_of(digits(stream={"name": "joint", "of": "permuted_digits"}))
    assert {"streams.joint", "streams.permuted_digits"} <= code.keys()


def test_a_method_of_another_package_counts_with_what_it_imports_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "mine_of_code.py").write_text(
        "from holdfast.losses.margin_softmax import margin_softmax_loss\nfrom holdfast.methods.er import ER\n"
        "class Mine(ER):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    code = run(toy_experiment(method="mine_of_code:Mine"), ResultStore(tmp_path / "runs")).code
    assert code is not None
    assert {"losses.margin_softmax", "methods.er"} <= code.keys()


def test_what_decides_the_numbers_of_a_run_counts_and_what_watches_it_does_not():
    def with_run(old: str, new: str, module: str = "run") -> dict[str, str]:
        source = package_sources()[f"holdfast.experiments.{module}"]
        assert old in source
        found = code_at(digits(), {**package_sources(), f"holdfast.experiments.{module}": source.replace(old, new)})
        assert found is not None
        return found

    today = code_of(digits())
    assert with_run("goes on from there and says so", "goes on") == today
    assert changed_modules(with_run("torch.manual_seed(experiment.seed)", "torch.manual_seed(1)"), today)
    assert changed_modules(with_run("learner.end_task()", "pass"), today) == ["experiments.run"]
    counted = with_run("== samples.y", "!= samples.y", module="probes.accuracy")
    assert changed_modules(counted, today) == ["experiments.probes.accuracy"]
    assert len(RUN) == 3


def test_a_result_and_its_checkpoint_hold_the_fingerprint(tmp_path: Path):
    experiment, store = toy_experiment(), ResultStore(tmp_path)
    result = run(experiment, store)
    assert result.code == code_of(experiment)
    assert result.continued_across == []
    assert store.find(experiment) == result
    assert read_checkpoint(store.folder(experiment) / CHECKPOINT)["code"] == result.code


def test_a_run_goes_on_with_the_same_code(tmp_path: Path):
    experiment = toy_experiment()
    assert run(experiment, stopped_run(tmp_path, experiment)).continued_across == []


def test_other_code_does_not_continue_a_run_but_says_what_changed(tmp_path: Path):
    experiment = toy_experiment()
    store = stopped_run(tmp_path, experiment)
    as_by_other_code(store, experiment)
    with pytest.raises(Refused, match=r"made by other code \(core\.model differs\): --fresh .*--continue-anyway"):
        run(experiment, store)
    as_by_other_code(store, experiment, known=False)
    with pytest.raises(Refused, match=r"which is not recorded in it.*--fresh .*--continue-anyway"):
        run(experiment, store)
    assert run(experiment, store, fresh=True).continued_across == []


@pytest.mark.parametrize("known", [True, False])
def test_continued_anyway_the_result_states_it(tmp_path: Path, known: bool):
    experiment = toy_experiment()
    store = stopped_run(tmp_path, experiment)
    old = as_by_other_code(store, experiment, known=known)
    result = run(experiment, store, continue_anyway=True)
    (change,) = result.continued_across
    assert result.code == code_of(experiment)
    assert (change.step, change.new) == (7, digest_of(result.code))
    assert (change.old, change.changed) == ((digest_of(old), ["core.model"]) if known else (None, []))
    assert json.loads((store.folder(experiment) / "result.json").read_text())["continued_across"]


def test_each_change_that_a_run_was_continued_across_is_kept(tmp_path: Path):
    experiment = toy_experiment()
    store = stopped_run(tmp_path, experiment)
    as_by_other_code(store, experiment)
    asked = iter(range(1, 4))
    with pytest.raises(Interrupted):
        run(experiment, store, continue_anyway=True, stop=lambda: next(asked) == 3)
    as_by_other_code(store, experiment)
    steps = [change.step for change in run(experiment, store, continue_anyway=True).continued_across]
    assert steps == [7, 10]


@pytest.mark.parametrize("code", [3, {"core": 3}, ["core"]])
def test_a_checkpoint_with_a_strange_fingerprint_is_refused(tmp_path: Path, code: object):
    experiment = toy_experiment()
    store = stopped_run(tmp_path, experiment)
    path = store.folder(experiment) / CHECKPOINT
    write_checkpoint(path, read_checkpoint(path) | {"code": code})
    with pytest.raises(ValueError, match="does not say which code made it"):
        run(experiment, store, continue_anyway=True)


class Heard:
    """A reporter that keeps what it is told."""

    def tell(self, report: Report) -> None: ...

    def begin(self, facts: dict[str, str], moment: Moment) -> None: ...

    def step(self, moment: Moment) -> None: ...

    def stop(self) -> bool:
        return False


def test_the_worker_of_a_sweep_refuses_and_continues_likewise(tmp_path: Path):
    experiment = toy_experiment()
    store = stopped_run(tmp_path, experiment)
    as_by_other_code(store, experiment)
    refused = carry_out(Order(experiment, tmp_path), Heard())
    assert refused.kind == "failed"
    assert "core.model differs" in refused.reason
    assert carry_out(Order(experiment, tmp_path, How(continue_anyway=True)), Heard()) == Outcome("finished")
    result = store.find(experiment)
    assert result is not None
    assert len(result.continued_across) == 1


def test_the_code_at_a_commit_is_found_without_checking_it_out(tmp_path: Path):
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], capture_output=True, check=True)

    for name, source in package_sources().items():
        path = tmp_path / "src" / Path(*name.split("."))
        # A module and a package are alike here.
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(source)
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    head = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    commit = head.stdout.strip()[:12]
    (tmp_path / "src" / "holdfast" / "learner.py").write_text("changed = 1")
    assert code_at(digits(), sources_at(commit, tmp_path)) == code_of(digits())
    with pytest.raises(ValueError, match="no sources at commit 0123456"):
        sources_at("0123456", tmp_path)
    with pytest.raises(ValueError, match="is no commit"):
        sources_at("--output=/tmp/x", tmp_path)


def test_code_that_lacks_a_module_of_the_experiment_is_not_known():
    assert (
        code_at(digits(), {name: s for name, s in package_sources().items() if name != "holdfast.methods.er"}) is None
    )
    assert code_at(Experiment.stored(DIGITS | {"method": "other.package:Method"}), package_sources()) is None
