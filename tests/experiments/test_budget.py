from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.checks.toy import Toy
from holdfast.cli.asked import Terms, on_terms
from holdfast.experiments.budget import flops_per_batch, in_real_time, with_delay, within_budget
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.recipes import Recipe
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.parts import Unknown
from holdfast.settings import Part


def experiment(method: str, *, setting: str = "class", **options: Any) -> Experiment:
    settings = {
        "stream": {"name": f"{Toy.__module__}:Toy", "n_train": 60},
        "method": {"name": method, **options},
        "setting": setting,
        "backbone": {"name": "mlp", "hidden": [16]},
        "memory": 50,
    }
    return Experiment.model_validate(settings)


def options_of(fitted: Experiment) -> dict[str, Any]:
    return {name: value for name, value in fitted.method.options.items() if name in ("replay_size", "steps_per_batch")}


def test_a_batch_is_counted_once_memory_is_full_enough() -> None:
    alone = flops_per_batch(experiment("finetune"))
    assert flops_per_batch(experiment("er", replay_size=10)) == 2 * alone
    assert flops_per_batch(experiment("er", replay_size=40)) == 5 * alone
    assert flops_per_batch(experiment("agem", replay_size=10)) == 2 * alone  # which replays earlier tasks only


def test_a_cheap_method_replays_more_and_then_takes_steps() -> None:
    one = flops_per_batch(experiment("finetune"))
    more = within_budget(experiment("er", replay_size=10), 4 * one).experiment
    assert options_of(more)["replay_size"] == 30
    assert flops_per_batch(more) == pytest.approx(4 * one, rel=0.02)
    most = within_budget(experiment("er", replay_size=10), 18 * one)
    assert options_of(most.experiment) == {"replay_size": 50, "steps_per_batch": 3}  # memory has no more
    assert "replay_size=50 instead of 10, steps_per_batch=3 instead of 1" in most.said
    assert options_of(within_budget(experiment("finetune"), 4 * one).experiment)["steps_per_batch"] == 4


def test_a_dear_method_replays_less_but_not_less_than_is_new() -> None:
    one = flops_per_batch(experiment("finetune"))
    less = within_budget(experiment("er", replay_size=40), 3 * one).experiment
    assert options_of(less)["replay_size"] == 20
    slow = within_budget(experiment("er", replay_size=40), one)
    assert (slow.experiment.method.name, slow.experiment.method.options["cost"]) == ("er+real_time", 2.0)
    assert options_of(slow.experiment)["replay_size"] == 10
    assert "learns one batch in 2" in slow.said


def test_a_method_that_takes_no_steps_stays_as_it_is() -> None:
    fitted = within_budget(experiment("ncm"), 1e12)
    assert fitted.experiment.method.name == "ncm"
    assert "unchanged" in fitted.said


def test_a_stream_that_does_not_wait_passes_dear_methods() -> None:
    one = flops_per_batch(experiment("finetune"))
    slow = in_real_time(experiment("er", replay_size=20), 2 * one).experiment
    assert (slow.method.name, slow.method.options["cost"]) == ("er+real_time", 1.5)
    assert in_real_time(experiment("er", replay_size=10), 2 * one).experiment == experiment("er", replay_size=10)


def test_what_was_fitted_runs_under_its_row(tmp_path: Path) -> None:
    fitted = with_delay(within_budget(experiment("er", replay_size=40), 1e4).experiment, 2)
    assert fitted.method.name == "er+real_time+delayed"
    result = run(fitted, ResultStore(tmp_path), probes=[Part(name="prequential")])
    assert result.experiment.row == "er"
    assert (
        result.metrics["prequential_accuracy"]
        < run(experiment("er"), ResultStore(tmp_path)).metrics["average_accuracy"]
    )


def test_terms_are_those_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = Recipe("mine", {"stream": "permuted_digits"}, {}, ())
    runs = [experiment("er", replay_size=10), experiment("er", replay_size=20)]
    one = flops_per_batch(experiment("finetune"))
    found = on_terms(Terms(str(2e-9 * one), "", 1), runs, recipe, {}, None)
    assert [options_of(each)["replay_size"] for each in found] == [10, 10]
    assert {each.method.name for each in found} == {"er+delayed"}
    assert "replay_size=10 instead of 20" in capsys.readouterr().err
    assert on_terms(Terms("", "", 0), runs, recipe, {}, None) == runs
    with pytest.raises(Unknown, match="give one"):
        on_terms(Terms("er", "er", 0), runs, recipe, {}, None)
    with pytest.raises(Unknown, match="above 0"):
        on_terms(Terms("-3", "", 0), runs, recipe, {}, None)
