"""The live page in a browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn

from holdfast.learner import Learner
from holdfast.serve.app import create_app
from holdfast.serve.process import _bound
from holdfast.serve.shelf import Shelf
from holdfast.serve.tokens import Tokens
from tests.support.browser import CHROMIUM, DRIVER, Browser, browser

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its driver")
TOKEN = "look-0123456789-0123456789"
LONG = "a_name_of_a_model_that_is_as_long_as_a_name_may_be_and_has_to_wrap"[:64]


def pictures(seed: int, n: int = 10) -> tuple[torch.Tensor, list[int]]:
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(4, (n,), generator=rng)
    x = torch.randint(60, (n, 1, 8, 8), generator=rng, dtype=torch.uint8)
    x[torch.arange(n), 0, y] = 250
    return x, y.tolist()


@contextmanager
def page(folder: Path, tokens: Tokens | None = None) -> Iterator[tuple[Browser, str]]:
    """Context manager: a browser and the address of a server with three models."""
    shelf = Shelf(folder / "models")
    hosted = shelf.put("pictures", Learner("er", memory=12, lr=0.05), replace=False)
    hosted.record.every = 10
    for seed in range(30):
        hosted.call("observe", *pictures(seed))[0].result()
    young = shelf.put("young", Learner("er", memory=12, lr=0.05), replace=False)
    young.record.every = 10
    for seed in range(10):
        young.call("observe", *pictures(seed))[0].result()
    shelf.put(LONG, Learner("er"), replace=False)
    bound = _bound("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(shelf, tokens=tokens), log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        with browser(folder / "profile") as opened:
            yield opened, f"http://127.0.0.1:{bound.getsockname()[1]}/#pictures"
    finally:
        server.should_exit = True
        thread.join()
        bound.close()
        shelf.close()


def until(opened: Browser, script: str) -> Any:
    """The first value of a script that is true."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        if found := opened.run(script):
            return found
    raise AssertionError(f"never true: {script}; the page says {opened.run('return document.body.innerText')}")


def test_the_page_shows_a_model_in_every_width_and_colour(tmp_path: Path):
    with page(tmp_path) as (opened, address):
        for width in (390, 1300):
            for dark in (False, True):
                opened.open_address(address, width=width, dark=dark)
                until(opened, "return document.querySelectorAll('#accuracy polyline').length === 2")
                assert opened.run("return document.querySelectorAll('#drift polyline').length") == 4
                assert opened.run("return document.querySelectorAll('#pictures img').length") == 12
                assert opened.run("return document.querySelectorAll('#classes tr').length") == 5
                assert opened.run("return document.documentElement.scrollWidth") <= width
                assert opened.messages() == []
                table = "document.getElementById('classes')"
                assert opened.run(f"return {table}.getBoundingClientRect().right") <= width, "a column is cut off"
        assert "300" in opened.run("return document.getElementById('numbers').innerText")
        opened.run(f"[...document.querySelectorAll('#models button')].find((b) => b.innerText === '{LONG}').click()")
        until(opened, "return document.getElementById('numbers').innerText.includes('–')")
        assert opened.messages() == []
        opened.run("[...document.querySelectorAll('#models button')].find((b) => b.innerText === 'young').click()")
        until(opened, "return document.querySelectorAll('#drift circle').length")
        marks = "[...document.querySelectorAll('#drift text[text-anchor=start]')].map((each) => each.textContent)"
        assert opened.run(f"return {marks}") == ["10"], "one measurement has one place"


def test_the_page_asks_for_a_token(tmp_path: Path):
    with page(tmp_path, Tokens([(TOKEN, ["predict"])])) as (opened, address):
        opened.open_address(address)
        until(opened, "return !document.getElementById('access').hidden")
        assert opened.run("return document.getElementById('model').hidden")
        opened.run(
            f"document.getElementById('token').value = '{TOKEN}'; document.querySelector('#access button').click()"
        )
        until(opened, "return document.querySelectorAll('#accuracy polyline').length === 2")
