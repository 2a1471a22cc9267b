"""What a learner keeps, in bytes, and a budget that holds while classes arrive."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch

from holdfast import Learner, load_learner
from holdfast.parts import names
from tests.support.same import assert_same
from tests.support.trees import compact

BUDGET = 100_000
VARIANTS: dict[str, dict[str, Any]] = {name: {"method": name} for name in names("methods")}
VARIANTS |= {f"er, {selection}": {"method": "er", "selection": selection} for selection in names("selections")}
VARIANTS |= {
    "er, average": {"method": "er", "average": 0.9, "momentum": 0.9},
    "er, adam": {"method": "er", "optimizer": "adam"},
    "drr, relative": {"method": "drr", "selection": {"name": "centroid", "relative": True}},
}


def of_classes(i: int, size: int) -> tuple[torch.Tensor, list[int]]:
    generator = torch.Generator().manual_seed(i)
    return torch.randn(size, 4, generator=generator), list(range(i * size, (i + 1) * size))


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_thousand_classes_stay_inside_the_budget_or_are_refused(variant: str):
    few = {"replay_size": 2} if variant in ("er", "mer", "scr") else {}
    options = {"backbone": {"name": "mlp", "hidden": [2]}, "memory": f"{BUDGET} B", "lr": 1e-3} | few
    if variant == "scr":
        options["projection"] = None
    learner = Learner(**(options | VARIANTS[variant]))
    for _ in range(3):
        learner.observe(*of_classes(0, 1))
    at_first = sum(learner.memory_report().values()) - (learner.memory.nbytes if learner.memory is not None else 0)
    for i in range(1, 20):
        before = compact(learner.state_dict())
        refusal = ""
        try:
            learner.observe(*of_classes(i, 100))
        except ValueError as error:
            refusal = str(error)
        if refusal:
            assert f"of {BUDGET} bytes" in refusal or f"memory='{BUDGET} B'" in refusal
            assert "memory_report" in refusal
            assert_same(compact(learner.state_dict()), before)
            break
        grown = sum(learner.memory_report().values()) - at_first
        assert grown <= BUDGET, learner.memory_report()


def test_a_large_label_leaves_a_learner_with_a_budget_as_it_was():
    learner = Learner("der", backbone={"name": "mlp", "hidden": [8]}, memory="5 KB")
    learner.observe(*of_classes(0, 4))
    before = compact(learner.state_dict())
    with pytest.raises(ValueError, match=r"its classes take .*memory_report"):
        learner.observe(torch.zeros(1, 4), [90_000])
    assert_same(compact(learner.state_dict()), before)
    learner.observe(*of_classes(0, 4))


def test_samples_leave_at_random_for_classes_that_come_and_the_learner_is_saved_so(tmp_path: Any):
    learner = Learner("er", backbone={"name": "mlp", "hidden": [8]}, memory="5 KB")
    for _ in range(40):
        learner.observe(*of_classes(0, 4))
    assert learner.memory is not None
    n_before = len(learner.memory)
    learner.observe(*of_classes(1, 4))
    assert len(learner.memory) < n_before
    learner.save(tmp_path / "learner")
    again = load_learner(tmp_path / "learner")
    for each in (learner, again):
        each.observe(*of_classes(1, 4))
        each.observe(*of_classes(2, 4))
    assert_same(again.state_dict(), learner.state_dict())


@pytest.mark.parametrize("optimizer", [{"momentum": 0.9}, {"optimizer": "adam"}])
def test_a_report_names_each_kind_and_counts_nothing_twice(optimizer: dict[str, Any]):
    learner = Learner("er", backbone={"name": "mlp", "hidden": [8]}, memory=10, average=0.9, **optimizer)
    for _ in range(2):
        learner.observe(*of_classes(0, 4))
    report = learner.memory_report()
    weights = sum(parameter.nbytes for parameter in learner.method.parameters())
    assert report["weights of the backbone"] + report["weights of the head"] == weights
    n_moments = 2 if "optimizer" in optimizer else 1
    for kind, n_copies in (("optimizer", n_moments), ("average of weights", 1)):
        assert n_copies * weights <= report[kind] < n_copies * weights + 3000, kind
    # A step of SGD writes new weights over their gradients.
    assert report.get("gradients", 0) == (weights if "optimizer" in optimizer else 0)
    assert (report["memory, x"], report["memory, y"]) == (160, 80)


GROWTH = """
import json, torch
from holdfast import Learner
torch.set_num_threads(1)
def resident():
    with open("/proc/self/statm") as file:
        return 4096 * int(file.read().split()[1])
def learn(**options):
    learner = Learner(**options, lr=1e-3)
    for i in range(100):
        learner.observe(torch.rand(400, 300), torch.arange(400) % 10)
    return learner
small = learn(method="er", backbone={"name": "mlp", "hidden": [10]}, memory=10, average=0.9, momentum=0.9)
before = resident()
made = learn(method="er", backbone={"name": "mlp", "hidden": [300]}, memory=40_000, average=0.9, momentum=0.9)
print(json.dumps({"grown": resident() - before, "report": made.memory_report()}))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for the size of a process")
def test_the_report_is_what_the_process_has_grown_by():
    run = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    reported = sum(found["report"].values())
    assert reported > 45e6
    # Bytes that a step needs for itself, and bytes that the allocator has not given back, come on top.
    assert 0.9 * reported < found["grown"] < 1.6 * reported, found
