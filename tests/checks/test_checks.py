"""`holdfast check` passes the parts of the package, and finds what is broken in others."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from holdfast.checks import check, checks_of, kind_of
from holdfast.cli import app
from holdfast.parts import Unknown

BROKEN = {  # by class, a check that has to fail and a part of its message
    "Raises": ("it learns a toy stream (class)", "KeyError: 'of the user'"),
    "Forgetful": ("a saved learner continues with the same bits (free)", "state["),
    "Thawing": ("a frozen backbone keeps its weights", "backbone"),
    "Clashing": ("no option is named like an argument of a learner", "momentum"),
    "GlobalDice": ("torch's own random numbers decide nothing (free)", "state["),
    "Relabels": ("memory holds samples of the stream and no more than it may (task)", "never came like that"),
    "TooMany": ("it picks stored samples, at most as many as asked for (class)", "30 samples were picked, and 1 asked"),
    "Aliasing": ("a batch is a copy", "read is to return a copy"),
    "Narrow": ("every weight gets a gradient", "idle.weight"),
    "Meddling": ("it changes nothing that is learned", "other bits"),
    "Amnesic": ("a run that was stopped and continued leaves the same result", "count"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_part_fails_its_check_and_not_all_of_them(name: str):
    sentence, message = BROKEN[name]
    outcomes = {each.sentence: each for each in check(f"tests.checks.broken:{name}")}
    assert outcomes[sentence].outcome == "failed"
    assert message in outcomes[sentence].message
    assert "passed" in {each.outcome for each in outcomes.values()}


def test_an_error_shows_the_users_own_lines_only():
    outcomes = {each.sentence: each for each in check("tests.checks.broken:Raises")}
    (frame,) = outcomes["it learns a toy stream (free)"].frames
    assert frame.file.endswith("broken.py")
    assert frame.function == "observe"
    assert frame.text == 'raise KeyError("of the user")'


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("er", {"setting": "free"}),
        ("tests.checks.broken:GlobalDice", {"setting": "free", "retrieval": "old_tasks"}),
        ("split_digits", {}),
        ("mlp", {"hidden": [4]}),
        ("prequential", {"every": 5, "window": 20}),
    ],
)
def test_options_and_settings_are_taken(name: str, changes: dict[str, object]):
    sentences = [each.sentence for each in checks_of(name, changes=changes)]
    assert not any("(task)" in sentence for sentence in sentences)
    failed = {each.sentence for each in check(name, changes=changes) if each.outcome == "failed"}
    assert failed <= {
        "torch's own random numbers decide nothing (free)",
        "a saved learner continues with the same bits (free)",
    }
    assert ("GlobalDice" in name) == bool(failed)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shapley", "one of the selections and of the retrievals: name its class"),
        ("nonsense", "no part is called 'nonsense'"),
        ("json:JSONDecoder", "is no part: derive it from one of Method"),
    ],
)
def test_a_name_that_is_no_part_is_one_sentence(name: str, message: str):
    with pytest.raises(Unknown, match=message):
        kind_of(name)


def test_an_option_that_a_stream_does_not_have_is_refused_by_the_check():
    outcomes = check("split_digits", changes={"nonsense": 1})
    assert {each.outcome for each in outcomes} == {"failed"}
    assert all("no 'nonsense' in the options of 'split_digits'" in each.message for each in outcomes)


def test_the_command_prints_each_check_and_ends_with_1_if_one_failed():
    failing = CliRunner().invoke(app, ["check", "tests.checks.broken:Raises", "--set", "setting=free"])
    assert failing.exit_code == 1
    assert "  passed  no option is named like an argument of a learner" in failing.output
    assert "  FAILED  it learns a toy stream (free)" in failing.output
    assert 'raise KeyError("of the user")' in failing.output
    assert failing.output.splitlines()[-1].endswith(" failed")

    passing = CliRunner().invoke(app, ["check", "uniform", "--set", "setting=free", "--json"])
    assert passing.exit_code == 0
    document = json.loads(passing.output)
    assert (document["kind"], document["failed"]) == ("retrievals", 0)
    assert {each["outcome"] for each in document["checks"]} == {"passed"}


def test_a_shape_that_is_none_is_refused():
    refused = CliRunner().invoke(app, ["check", "mlp", "--input-shape", "3xbig"])
    assert isinstance(refused.exception, Unknown)
    assert "'3xbig' is no shape" in str(refused.exception)
