"""A thread that learns stands aside while the event loop answers, and learns the same bits."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from holdfast.core.checkpoint import checksum_of
from holdfast.learner import Learner
from holdfast.serve.turns import Turns
from tests.support.serving import toy_batch


@pytest.fixture(autouse=True)
def _interval_kept() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def bits(method: str, turns: Turns) -> str:
    torch.manual_seed(0)
    learner = Learner(method, backbone="identity" if method == "hedge" else "mlp", lr=0.05, memory=20)
    for seed in range(3):
        with turns.aside():
            learner.observe(*toy_batch(seed))
    return checksum_of(learner.state_dict())


@pytest.mark.parametrize("method", ["er", "drr", "hedge", "agem"])
def test_who_stands_aside_learns_the_same_bits_and_comes_to_an_end(method: str):
    free, busy = Turns(), Turns()
    busy.predicted()
    loop = busy.loop()
    begun, ended, found = threading.Event(), threading.Event(), []

    async def answer_without_end() -> None:
        begun.set()
        while not ended.is_set():
            await asyncio.sleep(0)

    def learn() -> None:
        begun.wait()
        found.append(bits(method, busy))
        ended.set()

    thread = threading.Thread(target=learn)
    thread.start()
    loop.run_until_complete(answer_without_end())
    thread.join()
    loop.close()
    assert found == [bits(method, free)]


def test_an_operation_waits_for_the_loop_only_if_predictions_are_asked_for():
    turns, waits = Turns(), []
    loop = turns.loop()

    async def look() -> None:
        turns._idle.wait = lambda _: waits.append(1)  # type: ignore[method-assign, assignment, func-returns-value]
        with turns.aside():
            torch.ones(1)
        turns.predicted()
        with turns.aside():
            torch.ones(1)

    loop.run_until_complete(look())
    assert waits == [1]
    loop.close()


def test_nobody_waits_for_a_loop_that_is_closed_or_has_nothing_to_do():
    turns, seen = Turns(), []
    loop = turns.loop()

    async def rest() -> None:
        loop.call_later(0.01, seen.append, "work")
        waiter = loop.run_in_executor(None, turns._idle.wait, 60)
        seen.append(await waiter)

    loop.run_until_complete(rest())
    assert True in seen
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert turns._idle.is_set()
