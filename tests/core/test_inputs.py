"""The checks at the door; tests/test_learner.py has the list of what is refused."""

from __future__ import annotations

import doctest

import numpy as np
import torch

from holdfast.core import inputs
from holdfast.core.inputs import checked_inputs, checked_tasks


def test_the_examples_run():
    assert doctest.testmod(inputs).failed == 0


def test_what_is_given_is_not_written_to_and_shares_no_gradient():
    given = torch.ones(2, 3, requires_grad=True)
    checked = checked_inputs(given, shape=(3,), dtype=torch.float32)
    assert not checked.requires_grad
    assert given.requires_grad


def test_doubles_become_floats_of_the_usual_length():
    assert checked_inputs(np.ones((2, 3)), shape=None, dtype=None).dtype == torch.float32


def test_one_task_is_that_of_all_samples():
    assert checked_tasks(np.int64(3), 2, "class", learning=True).tolist() == [3, 3]
    assert checked_tasks(None, 2, "class", learning=False).tolist() == [-1, -1]
