"""Inputs that wait for their labels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from holdfast.core.waiting import Waiting
from tests.support.same import assert_same


def test_inputs_are_taken_in_any_order_and_expire_when_there_is_no_room() -> None:
    waiting = Waiting(3)
    waiting.put([1, "b"], torch.tensor([[1.0], [2.0]]))
    waiting.put([(3, "c"), None], torch.tensor([[3.0], [4.0]]))
    assert (len(waiting), waiting.n_expired, waiting.nbytes) == (3, 1, 12)
    assert waiting.take([None, "b"]).tolist() == [[4.0], [2.0]]
    assert (len(waiting), waiting.n_put, waiting.n_taken) == (1, 4, 2)
    with pytest.raises(ValueError, match="no input waits under 1, None"):
        waiting.take([(3, "c"), 1, None])
    assert (3, "c") in waiting


def test_an_id_that_comes_again_replaces_its_input_and_is_the_newest() -> None:
    waiting = Waiting(2)
    waiting.put(["a", "b"], torch.tensor([[1.0], [2.0]]))
    waiting.put(["a"], torch.tensor([[9.0]]))
    waiting.put(["c"], torch.tensor([[3.0]]))
    assert "b" not in waiting
    assert waiting.take(["a"]).tolist() == [[9.0]]


def test_what_waits_does_not_follow_the_array_it_came_from() -> None:
    waiting, x = Waiting(2), torch.tensor([[1.0]])
    waiting.put(["a"], x)
    x[0] = 7.0
    assert waiting.take(["a"]).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("ids", "message"),
    [(["a"], "1 ids for 2"), (["a", "a"], "twice"), ("ab", "text"), ([["a"], ["b"]], "list")],
    ids=["too few", "twice", "text", "lists"],
)
def test_wrong_ids_are_refused_and_nothing_kept(ids: Any, message: str) -> None:
    waiting = Waiting(5)
    with pytest.raises(ValueError, match=message):
        waiting.put(ids, torch.zeros(2, 3))
    assert (len(waiting), waiting.n_put) == (0, 0)


def test_it_is_restored_as_it_was_and_a_damaged_one_refused() -> None:
    waiting, again = Waiting(3), Waiting(3)
    again.load_state_dict(waiting.state_dict())
    waiting.put(["a", (1, 2)], torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8))
    again.load_state_dict(waiting.state_dict())
    assert_same(again.state_dict(), waiting.state_dict())
    assert again.take([(1, 2)]).tolist() == [[3, 4]]
    state = waiting.state_dict()
    for damage in ({"ids": ["a"]}, {"ids": ["a", "a"]}, {"x": None}, {"capacity": 1}, {"n_expired": -1}):
        with pytest.raises(ValueError, match=r"wait|twice|Waiting"):
            Waiting(3).load_state_dict(state | damage)
