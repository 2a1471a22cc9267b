"""The page is one file that runs nothing but its own script, whatever the results are called."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from holdfast.report.html_page import HERE, html_page
from holdfast.report.page_data import page_data
from tests.support.made_up_results import hostile_results, store


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def test_the_page_holds_the_data_as_it_is(tmp_path):
    store(tmp_path, "permuted_digits", "er", {1: 0.5, 2: 0.6})
    data = page_data(tmp_path, base=Path())
    inline, _ = Elements(html_page(data)).scripts
    assert json.loads(inline) == data


def test_hostile_names_stay_text(tmp_path):
    names = hostile_results(tmp_path)
    data = page_data(tmp_path, base=Path())
    page = html_page(data)
    elements = Elements(page)
    plain = Elements(html_page(page_data(tmp_path / "none", base=Path())))
    assert [tag for tag, _ in elements.found] == [tag for tag, _ in plain.found]
    assert json.loads(elements.scripts[0])["labels"] == data["labels"]
    assert any(name in label for name in names for label in data["labels"])
    assert elements.scripts[1] == plain.scripts[1]


def test_a_folder_with_a_hostile_name_is_escaped_in_the_title():
    page = html_page(
        {
            "folder": '</title><script>alert(1)</script>{{data}}"',
            "sections": [],
            "problems": [],
            "notes": [],
            "labels": [],
        }
    )
    assert "<script>alert" not in page
    assert len(Elements(page).scripts) == 2


def test_nothing_is_fetched_and_only_the_pages_own_script_may_run(tmp_path):
    page = html_page(page_data(tmp_path, base=Path()))
    elements = Elements(page)
    for tag, attributes in elements.found:
        assert "src" not in attributes
        assert tag != "link" or attributes["href"] == "data:,"
        assert not any(name.startswith("on") for name in attributes)
    (policy,) = (a["content"] for _, a in elements.found if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(elements.scripts[1].encode()).digest()).decode()
    assert policy is not None
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


@pytest.mark.parametrize("name", ["charts.js", "page.js"])
def test_text_enters_the_page_as_text_only(name):
    script = (HERE / name).read_text()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "</script"):
        assert way not in script


# Linear RGB as seen by eyes without one kind of cone: Machado, Oliveira and Fernandes, IEEE TVCG 2009, severity 1.
SEEN_BY = {
    "all cones": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ rgb.clip(0, 1) / [0.95047, 1, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_methods_are_told_apart_also_without_red_or_green(theme):
    style = (HERE / "page.css").read_text()
    pairs = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", style))
    colour = {name: pair.split(", ")[theme] for name, pair in pairs.items()}
    methods = [colour[f"method-{i}"] for i in range(8)]
    for eyes in SEEN_BY.values():
        for one, other in itertools.combinations(methods, 2):
            assert np.linalg.norm(lab(eyes @ linear(one)) - lab(eyes @ linear(other))) > 28, (one, other)
    for ground in ("ground", "card"):
        assert all(contrast(each, colour[ground]) > 2.95 for each in methods)
        for ink in ("ink", "quiet", "accent"):
            assert contrast(colour[ink], colour[ground]) >= 4.5  # WCAG AA for text


def test_the_script_has_as_many_looks_as_colours_in_the_style():
    assert "const N_COLOURS = 8;" in (HERE / "charts.js").read_text()
    assert len(re.findall(r"--method-\d+:", (HERE / "page.css").read_text())) == 8
