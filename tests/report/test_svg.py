"""Pictures hold what they should, where they should, and do what they must not under no name."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast.report
from holdfast.report.figures import Figure, make_figure, paper_figures
from holdfast.report.svg import CLASS_COLOURS, COLOURS, draw, look_of, round_ticks
from holdfast.report.tables import Row
from tests.support.made_up_results import HOSTILE, bars, lines, maps

SVG = "{http://www.w3.org/2000/svg}"
FIGURES = [bars, lines, maps]


def parsed(figure: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(draw(figure))


def found(root, name, **attributes):
    return [e for e in root.iter(SVG + name) if all(e.get(key.replace("_", "-")) == v for key, v in attributes.items())]


def texts(root) -> list[str]:
    return ["".join(e.itertext()) for e in root.iter(SVG + "text")]


def points(element) -> list[tuple[float, float]]:
    return [tuple(map(float, pair.split(","))) for pair in element.get("points").split()]


def places(root):
    """Every place that something is drawn at; of paths, where they begin."""
    for e in root.iter():
        for x, y in (("x", "y"), ("x1", "y1"), ("x2", "y2"), ("cx", "cy")):
            if e.get(x) is not None and "%" not in e.get(x):
                yield float(e.get(x)), float(e.get(y))
        if e.tag == SVG + "rect" and "%" not in e.get("width"):
            yield float(e.get("x")) + float(e.get("width")), float(e.get("y")) + float(e.get("height"))
        if e.get("points"):
            yield from points(e)
        if e.get("d"):
            yield from [tuple(map(float, pair)) for pair in re.findall(r"M([-\d.]+) ([-\d.]+)", e.get("d"))]


@pytest.mark.parametrize("figure", FIGURES)
def test_everything_is_on_the_sheet_and_nothing_comes_from_elsewhere(figure):
    root = parsed(figure())
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    found_places = list(places(root))
    assert len(found_places) > 20
    assert all(0 <= x <= width and 0 <= y <= height for x, y in found_places)
    assert {e.tag for e in root.iter()} <= {
        SVG + tag for tag in ("svg", "title", "rect", "text", "line", "path", "polyline", "polygon", "circle", "g")
    }
    names = {name for e in root.iter() for name in e.keys()}  # noqa: SIM118  an element is no mapping
    assert not any(name.startswith("on") or "href" in name or name == "style" for name in names)
    first = root.find(SVG + "rect")
    assert (first.get("width"), first.get("fill")) == ("100%", "#ffffff")


@pytest.mark.parametrize("figure", FIGURES)
def test_texts_end_on_the_sheet(figure):
    root = parsed(figure())
    for e in root.iter(SVG + "text"):
        if e.get("transform"):
            continue
        letters = 0.62 * float(e.get("font-size")) * len(e.text)  # a wide font
        share = {"end": 1.0, "middle": 0.5}.get(e.get("text-anchor"), 0.0)
        assert float(e.get("x")) - share * letters >= 0
        assert float(e.get("x")) + (1 - share) * letters <= float(root.get("width"))


@pytest.mark.parametrize("figure", FIGURES)
def test_the_same_figure_gives_the_same_bytes(figure):
    assert draw(figure()) == draw(figure())


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("name", [*HOSTILE, "\x00\x1b[31m\ud800 \U0001f600", "]]>&amp;", "ein sehr langer Name " * 20])
def test_names_stay_names(figure, name):
    plain = figure()
    tables = tuple(
        replace(
            table,
            title=name,
            rows=tuple(Row(name, row.name, row.cells) for row in table.rows),
            columns=tuple(replace(column, title=name) for column in table.columns),
            notes=(name,),
        )
        for table in plain.tables
    )
    named = replace(plain, title=name, tables=tables, maps=tuple(replace(each, label=name) for each in plain.maps))
    root = parsed(named)
    count = {tag: len(found(parsed(plain), tag)) for tag in ("rect", "polyline", "polygon", "circle", "path", "line")}
    assert {tag: len(found(root, tag)) for tag in count} == count
    assert not found(root, "script")
    assert root.find(SVG + "title").text.startswith("figure-0: ")
    draw(named).encode("utf-8")


def test_a_bar_is_as_long_as_its_mean_and_a_whisker_as_its_deviation():
    root = parsed(bars())
    rects = found(root, "rect", height="14")
    drr, er = look_of(0).colour, look_of(1).colour
    assert [(r.get("fill"), float(r.get("width"))) for r in rects] == [(er, 162.0), (drr, 45.0), (er, 90.0)]  # of 180
    (whisker,) = found(root, "path", stroke="#1b2430")  # the deviation of one seed is none
    left = float(rects[2].get("x"))
    low, _, high = re.match(r"M([\d.]+) ([\d.]+)H([\d.]+)", whisker.get("d")).groups()
    assert (float(low) - left, float(high) - left) == (pytest.approx(72), pytest.approx(108))  # 50 ± 10
    for text in ("90.0", "25.0†", "50.0", "DRR <&>†", "ER", "accuracy (%)", "One", "Two", "1 seed", "2 seeds"):
        assert text in texts(root)
    assert "Never run" not in texts(root)


def test_bars_of_one_method_stand_at_one_height():
    er = [e.get("y") for e in found(parsed(bars()), "rect", height="14", fill=look_of(1).colour)]
    assert len(er) == 2
    assert len(set(er)) == 1


def test_lines_are_where_the_means_are():
    root = parsed(lines())
    curves = [points(e) for e in found(root, "polyline")]
    assert [len(curve) for curve in curves] == [4, 4, 2, 1, 2, 2]  # three panels and a legend of two
    er, drr = curves[:2]
    y = {92.0: er[0][1], 80.0: er[1][1], 72.0: er[2][1], 64.0: er[3][1], 95.0: drr[0][1], 81.0: drr[3][1]}
    unit = (y[64.0] - y[92.0]) / 28
    for value, place in y.items():
        assert place == pytest.approx(y[92.0] + unit * (92 - value), abs=0.11)  # rounded to tenths
    assert np.ptp(np.diff([x for x, _ in er])) == pytest.approx(0, abs=0.11)
    (band,) = found(root, "polygon")  # of the only one with several seeds
    upper, lower = points(band)[:4], points(band)[:3:-1]
    for (left, high), (same, low), (x, middle), std in zip(upper, lower, er, (2, 0, 2, 4), strict=True):
        assert left == same == x
        assert (middle - high, low - middle) == (
            pytest.approx(unit * std, abs=0.11),
            pytest.approx(unit * std, abs=0.11),
        )


def test_lines_have_axes_marks_and_a_legend():
    root = parsed(lines())
    told = texts(root)
    assert told.count("tasks learned") == told.count("average accuracy (%)") == 3
    assert (told.count("ER"), told.count("DRR")) == (1, 1)
    assert {"60", "70", "80", "90", "100", "1", "2", "3", "4"} <= set(told)
    assert "four: no run is stored." in told
    assert "Four" not in told
    marks = [e for e in found(root, "path") if e.get("fill") in (look_of(0).colour, look_of(1).colour)]
    assert len(marks) == 4 + 4 + 2 + 1 + 2


def test_maps_have_every_sample_in_its_panel():
    figure = maps()
    root = parsed(figure)
    n_classes = 6
    panels = [r for r in found(root, "rect") if r.get("fill") == "none"]
    assert len(panels) == 3 + 2
    assert len(found(root, "circle")) == 5 * 30 + n_classes
    groups = found(root, "g")
    assert [len(g) for g in groups] == [10] * 3 * 5
    for i, (each, place) in enumerate([(e, p) for e in figure.maps for p in range(len(e.tasks))]):
        left, top, side = (float(panels[i].get(name)) for name in ("x", "y", "width"))
        of_panel = groups[3 * i : 3 * i + 3]
        drawn = np.array([[float(c.get("cx")), -float(c.get("cy"))] for g in of_panel for c in g])
        wanted = np.concatenate([each.places[place][each.y == c] for c in np.unique(each.y)])
        assert ((drawn > [left, -top - side]) & (drawn < [left + side, -top])).all()
        apart = [np.linalg.norm(a[:, None] - a, axis=2) for a in (drawn, wanted)]
        ratio = apart[0].max() / apart[1].max()
        np.testing.assert_allclose(apart[0], ratio * apart[1], atol=0.3)  # but for its size the same map
        assert [g.get("fill") for g in of_panel] == [CLASS_COLOURS[c % 10] for c in np.unique(each.y)]


def test_maps_say_after_which_task_and_how_far():
    told = texts(parsed(maps()))
    assert told[1:4] == ["after task 1", "after task 9", "after task 17"]
    assert [text for text in told if text.startswith("moved")] == [
        *("moved 0.00", "moved 1.25"),
        *("moved 0.00", "moved 0.50"),
    ]
    assert {"A-GEM", "DRR", "class", "One run a method."} <= set(told)


def test_a_method_is_told_without_its_colour_and_has_the_colours_of_the_page():
    looks = [look_of(place) for place in range(35)]
    assert len({(look.dash, look.mark) for look in looks}) == 35
    assert len({look.colour for look in looks[:8]}) == 8
    style = (Path(holdfast.report.__file__).parent / "page.css").read_text()
    assert list(COLOURS) == re.findall(r"--method-\d: light-dark\((#\w{6})", style)
    assert list(CLASS_COLOURS) == re.findall(r"--class-\d: light-dark\((#\w{6})", style)


def test_there_are_looks_enough_for_all_methods_of_the_paper():
    assert len(make_figure(paper_figures()["figure-acc"], [], "cpu").methods) <= 35


@given(st.floats(0, 100), st.floats(0, 100))
def test_ticks_are_round_few_and_reach_over_the_values(one, other):
    low, high = sorted((one, other))
    ticks = round_ticks(low, high)
    step = ticks[1] - ticks[0]
    assert 2 <= len(ticks) <= 8
    assert ticks[0] <= low + 1e-6
    assert ticks[-1] >= high - 1e-6
    if high - low > 1e-3:
        assert f"{step:.0e}"[0] in "125"
        assert np.allclose(np.diff(ticks), step)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (63.9, 95.2, [60, 70, 80, 90, 100]),
        (1, 17, [0, 5, 10, 15, 20]),
    ],
)
def test_ticks_of_some_ranges(low, high, ticks):
    assert round_ticks(low, high) == ticks
