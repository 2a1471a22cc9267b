"""Figures as SVG: one file that needs no script, no font and no other file."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from holdfast.report.figures import Figure, MethodMap
from holdfast.report.tables import Cell, Row, Table

# The light ones of page.css, which eyes that see no red or no green tell apart.
COLOURS = ("#1756b6", "#d68100", "#46a48f", "#633767", "#a06d3d", "#01005f", "#8891c9", "#490017")
CLASS_COLOURS = (
    "#332288", "#88ccee", "#44aa99", "#117733", "#999933", "#ddaa33", "#cc6677", "#882255", "#aa4499", "#777777",
)  # fmt: skip
MARKS = ("circle", "square", "diamond", "triangle", "cross", "plus", "wedge")
DASHES = ("", "6 3", "2 2", "8 3 2 3", "12 4")

INK, QUIET, RULE, GROUND = "#1b2430", "#566273", "#d8dee6", "#ffffff"
HALO: dict[str, Any] = {"stroke": GROUND, "stroke_width": 3, "paint_order": "stroke", "stroke_linejoin": "round"}
MARGIN = 20
LETTER = 0.58  # width of a letter on average, in sizes of the font
LONGEST_LABEL = 26  # letters; what is longer is cut

SPREADS = {
    "learned": ["Bars are means over seeds, whiskers the deviation of the population."],
    "trend": ["Lines are means over seeds, bands the deviation of the population."],
}
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def draw(figure: Figure) -> str:
    """Draw the figure with title, legend and notes; of drift, with the maps that `with_maps` has added."""
    parts, width, bottom = {"learned": _bars, "trend": _lines, "drift": _maps}[figure.kind](figure)
    told, bottom = _small_print([*SPREADS.get(figure.kind, []), *figure.notes], bottom + 14, width)
    size = {"width": width, "height": round(bottom + MARGIN), "viewBox": f"0 0 {width} {round(bottom + MARGIN)}"}
    words = {"role": "img", "font-family": "system-ui, 'DejaVu Sans', sans-serif"}
    heading = f"{figure.id}: {figure.title}"
    lines = [
        _tag("title", heading),
        _tag("rect", width="100%", height="100%", fill=GROUND),
        _text(heading, MARGIN, 32, size=16, weight="bold"),
        *parts,
        *told,
    ]
    return _tag("svg", "\n" + "\n".join(lines) + "\n", xmlns="http://www.w3.org/2000/svg", **size, **words) + "\n"


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Some multiples of 1, 2 or 5 times a power of ten, the first not above `low` and the last not below `high`."""
    raw = max(high - low, 1e-9) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 9) for i in range(first, max(last, first + 1) + 1)]


@dataclass(frozen=True)
class Look:
    """Look of the lines and bars of a method."""

    colour: str
    dash: str
    mark: str


def look_of(place: int) -> Look:
    """Return the look of the method in a place. No two of the first 35 share both dashes and mark."""
    # Shifted in each round, else DRR and ER, eight places apart and in most figures, would share a colour.
    colour = COLOURS[(place + 2 * (place // len(COLOURS))) % len(COLOURS)]
    return Look(colour, DASHES[place // len(MARKS) % len(DASHES)], MARKS[place % len(MARKS)])


Drawn = tuple[list[str], int, float]  # elements, the width of the sheet, and where the last of them ends


@dataclass(frozen=True)
class _Box:
    """The plot of a panel."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height


@dataclass(frozen=True)
class _Scale:
    """Linear scale of an axis; values beyond its ends are drawn at the ends."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def _bars(figure: Figure) -> Drawn:
    """Draw a panel for each benchmark, in which a method has the same line everywhere."""
    (table,) = figure.tables
    places = [i for i in range(len(table.columns)) if any(row.cells[i].values for row in table.rows)]
    label_width = max(_width(_named(row), 12) for row in table.rows) + 12
    pitch, panel, gap, top = 21, 180, 62, 86
    height = pitch * len(table.rows)
    parts = [
        _text(_named(row), MARGIN + label_width - 8, top + (i + 0.5) * pitch + 4, size=12, anchor="end")
        for i, row in enumerate(table.rows)
    ]
    for number, place in enumerate(places):
        box = _Box(MARGIN + label_width + number * (panel + gap), top, panel, height)
        parts += _panel_title(box, table.columns[place].title, [row.cells[place] for row in table.rows])
        scale = _Scale(0, 100, box.left, box.right)
        parts += _across(box, scale, round_ticks(0, 100), "accuracy (%)")
        for i, row in enumerate(table.rows):
            look = look_of(figure.methods.index(row.name))
            parts += _bar(row.cells[place], scale, box.top + (i + 0.5) * pitch, look.colour)
    width = MARGIN + label_width + len(places) * (panel + gap) + MARGIN
    return parts, _sheet_width(figure, width), top + height + 40


def _bar(cell: Cell, scale: _Scale, y: float, colour: str) -> list[str]:
    """Draw a bar with its number, and a whisker of the deviation where there are several seeds."""
    if cell.mean is None or cell.std is None:
        return []
    parts = [_tag("rect", x=scale.start, y=y - 7, width=scale(cell.mean) - scale.start, height=14, fill=colour)]
    end = scale(cell.mean)
    if len(cell.values) > 1:
        low, end = scale(cell.mean - cell.std), scale(cell.mean + cell.std)
        path = f"M{_n(low)} {_n(y)}H{_n(end)}M{_n(low)} {_n(y - 4)}v8M{_n(end)} {_n(y - 4)}v8"
        # White beneath, so that it is seen on the bar too.
        parts += [_path(path, stroke=GROUND, width=3), _path(path, stroke=INK, width=1.2)]
    mark = "†" if cell.departures else ""
    return [*parts, _text(f"{cell.mean:.1f}{mark}", end + 6, y + 4, size=11, **HALO)]


def _lines(figure: Figure) -> Drawn:
    """Draw a panel for each benchmark with runs, two beside each other, and one legend."""
    tables = [table for table in figure.tables if table.rows]
    panel, height, left, top, column, line = 380, 230, MARGIN + 52, 86, 470, 320
    parts: list[str] = []
    for number, table in enumerate(tables):
        box = _Box(left + number % 2 * column, top + number // 2 * line, panel, height)
        parts += _trend_panel(figure, table, box)
    width = _sheet_width(figure, left + (column if len(tables) > 1 else 0) + panel + MARGIN)
    rows: dict[str, str] = {}
    for table in tables:
        for row in table.rows:
            rows[row.name] = max(rows.get(row.name, ""), _named(row), key=len)
    names = sorted(rows, key=figure.methods.index)
    samples = [(look_of(figure.methods.index(name)), rows[name]) for name in names]
    legend, bottom = _legend(samples, top + -(-len(tables) // 2) * line - 20, width)
    return parts + legend, width, bottom


def _trend_panel(figure: Figure, table: Table, box: _Box) -> list[str]:
    cells = [cell for row in table.rows for cell in row.cells]
    ends = [mean + sign * std for cell in cells for sign in (-1, 1) for mean, std in _mean_and_std(cell)]
    low = min(max(0, min(ends)), 99)
    ticks = round_ticks(low, max(min(100, max(ends)), low + 1))  # values that are all the same have a range, too
    n_tasks = len(table.columns)
    x, y = _Scale(0.5, n_tasks + 0.5, box.left, box.right), _Scale(ticks[0], ticks[-1], box.bottom, box.top)
    tasks = [tick for tick in round_ticks(1, n_tasks) if 1 < tick <= n_tasks and tick == int(tick)]
    parts = _panel_title(box, table.title, cells)
    parts += _across(box, x, [1, *tasks], "tasks learned")
    parts += _upwards(box, y, ticks, "average accuracy (%)")
    shown = [(look_of(figure.methods.index(row.name)), row) for row in table.rows]
    parts += [band for look, row in shown if (band := _band(row, x, y, look))]
    for look, row in shown:
        points = [(x(t + 1), y(mean)) for t, cell in enumerate(row.cells) for mean, _ in _mean_and_std(cell)]
        parts.append(_line(points, look))
        parts += [_mark(look, *point, size=2.6) for point in points[:: -(-len(points) // 20)]]
    return parts


def _band(row: Row, x: _Scale, y: _Scale, look: Look) -> str | None:
    """Mean ± deviation; None of one seed."""
    known = [(x(t + 1), cell) for t, cell in enumerate(row.cells) if len(cell.values) > 1]
    if not known:
        return None
    upper = [(place, y(mean + std)) for place, cell in known for mean, std in _mean_and_std(cell)]
    lower = [(place, y(mean - std)) for place, cell in known for mean, std in _mean_and_std(cell)]
    return _tag("polygon", points=_points(upper + lower[::-1]), fill=look.colour, fill_opacity=0.14)


def _maps(figure: Figure) -> Drawn:
    """Draw a line of panels for each method: the same map after each of the tasks."""
    side, gap, top = 200, 10, 80
    label_width = max(_width(_short(each.label), 13) for each in figure.maps) + 14
    classes = sorted({int(y) for each in figure.maps for y in each.y.tolist()})
    parts = [
        _text(
            f"after task {task}", MARGIN + label_width + (i + 0.5) * side + i * gap, top - 8, size=13, anchor="middle"
        )
        for i, task in enumerate(figure.after)
    ]
    for number, each in enumerate(figure.maps):
        y = top + number * (side + gap)
        parts.append(_text(_short(each.label), MARGIN, y + side / 2 + 4, size=13, weight="bold"))
        for i, task in enumerate(figure.after):
            if task in each.tasks:
                box = _Box(MARGIN + label_width + i * (side + gap), y, side, side)
                parts += _map_panel(each, each.tasks.index(task), box)
    width = _sheet_width(figure, MARGIN + label_width + len(figure.after) * (side + gap) + MARGIN)
    bottom = top + len(figure.maps) * (side + gap) + 14
    x = MARGIN + label_width
    parts.append(_text("class", MARGIN, bottom + 4, size=12))
    for c in classes:
        if x + 40 > width:
            x, bottom = MARGIN + label_width, bottom + 20
        parts += [_dot(x + 5, bottom, 4, _class_colour(c)), _text(str(c), x + 13, bottom + 4, size=12)]
        x += 24 + _width(str(c), 12)
    return parts, width, bottom + 8


def _map_panel(drawn: MethodMap, place: int, box: _Box) -> list[str]:
    """Draw the samples. Each class is also named at its centre, for readers who cannot tell the colours."""
    low, high = drawn.places.min(axis=(0, 1)), drawn.places.max(axis=(0, 1))
    middle, reach = (low + high) / 2, 0.55 * max(float((high - low).max()), 1e-12)
    x = _Scale(middle[0] - reach, middle[0] + reach, box.left, box.right)
    y = _Scale(middle[1] - reach, middle[1] + reach, box.bottom, box.top)
    parts = [_tag("rect", x=box.left, y=box.top, width=box.width, height=box.height, fill="none", stroke=RULE)]
    names = []
    for c in np.unique(drawn.y).tolist():
        of_class = drawn.places[place][drawn.y == c]
        dots = "".join(_tag("circle", cx=x(left), cy=y(up), r=1.8) for left, up in of_class.tolist())
        parts.append(_tag("g", dots, fill=_class_colour(int(c)), fill_opacity=0.75))
        left, up = np.median(of_class, axis=0).tolist()
        names.append(_text(str(int(c)), x(left), y(up) + 4, size=12, weight="bold", anchor="middle", **HALO))
    moved = drawn.moved[place]
    told = (
        []
        if moved is None
        else [_text(f"moved {moved:.2f}", box.left + 5, box.bottom - 6, size=10, fill=QUIET, **HALO)]
    )
    return [*parts, *names, *told]


def _class_colour(c: int) -> str:
    return CLASS_COLOURS[c % len(CLASS_COLOURS)]


def _panel_title(box: _Box, title: str, cells: Iterable[Cell]) -> list[str]:
    counts = sorted({len(cell.values) for cell in cells if cell.values})
    seeds = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' * (counts[0] > 1)}"
    return [
        _text(_short(title), box.left, box.top - 22, size=13, weight="bold"),
        _text(seeds, box.left, box.top - 7, size=11, fill=QUIET),
    ]


def _across(box: _Box, scale: _Scale, ticks: Sequence[float], label: str) -> list[str]:
    """Draw the axis below a plot."""
    parts = [_tag("line", x1=scale(t), x2=scale(t), y1=box.top, y2=box.bottom, stroke=RULE) for t in ticks]
    parts += [_text(f"{t:g}", scale(t), box.bottom + 15, size=11, anchor="middle", fill=QUIET) for t in ticks]
    parts.append(_tag("line", x1=box.left, x2=box.right, y1=box.bottom, y2=box.bottom, stroke=QUIET))
    return [*parts, _text(label, (box.left + box.right) / 2, box.bottom + 32, size=12, anchor="middle")]


def _upwards(box: _Box, scale: _Scale, ticks: Sequence[float], label: str) -> list[str]:
    """Draw the axis left of a plot."""
    parts = [_tag("line", x1=box.left, x2=box.right, y1=scale(t), y2=scale(t), stroke=RULE) for t in ticks]
    parts += [_text(f"{t:g}", box.left - 6, scale(t) + 4, size=11, anchor="end", fill=QUIET) for t in ticks]
    x, y = box.left - 38, (box.top + box.bottom) / 2
    turned = {"transform": f"rotate(-90 {_n(x)} {_n(y)})"}
    return [*parts, _text(label, x, y, size=12, anchor="middle", **turned)]


def _legend(samples: list[tuple[Look, str]], top: float, width: int) -> tuple[list[str], float]:
    """Draw a piece of line for each method with its name, as many beside each other as there is room for."""
    column = max(_width(name, 12) for _, name in samples) + 58
    n_columns = max(1, int((width - 2 * MARGIN) // column))
    parts = []
    for i, (look, name) in enumerate(samples):
        x, y = MARGIN + i % n_columns * column, top + i // n_columns * 20
        parts += [_line([(x, y), (x + 36, y)], look), _mark(look, x + 18, y, size=3.2)]
        parts.append(_text(name, x + 44, y + 4, size=12))
    return parts, top + (len(samples) - 1) // n_columns * 20 + 8


def _small_print(notes: Iterable[str], top: float, width: int) -> tuple[list[str], float]:
    letters = int((width - 2 * MARGIN) / (LETTER * 10))
    lines = [line for note in notes for line in textwrap.wrap(note, letters)]
    return [_text(line, MARGIN, top + 14 * (i + 1), size=10, fill=QUIET) for i, line in enumerate(lines)], (
        top + 14 * len(lines)
    )


def _line(points: list[tuple[float, float]], look: Look) -> str:
    dashes = {"stroke_dasharray": look.dash} if look.dash else {}
    return _tag("polyline", points=_points(points), fill="none", stroke=look.colour, stroke_width=1.6, **dashes)


def _mark(look: Look, x: float, y: float, *, size: float) -> str:
    s = size
    paths = {
        "circle": f"m{_n(-s)} 0a{_n(s)} {_n(s)} 0 1 0 {_n(2 * s)} 0a{_n(s)} {_n(s)} 0 1 0 {_n(-2 * s)} 0z",
        "square": f"m{_n(-s)} {_n(-s)}h{_n(2 * s)}v{_n(2 * s)}h{_n(-2 * s)}z",
        "diamond": f"m0 {_n(-s - 1)}l{_n(s + 1)} {_n(s + 1)}l{_n(-s - 1)} {_n(s + 1)}l{_n(-s - 1)} {_n(-s - 1)}z",
        "triangle": f"m0 {_n(-s - 1)}l{_n(s + 1)} {_n(2 * s + 1)}h{_n(-2 * s - 2)}z",
        "wedge": f"m0 {_n(s + 1)}l{_n(s + 1)} {_n(-2 * s - 1)}h{_n(-2 * s - 2)}z",
        "cross": f"m{_n(-s)} {_n(-s)}l{_n(2 * s)} {_n(2 * s)}m0 {_n(-2 * s)}l{_n(-2 * s)} {_n(2 * s)}",
        "plus": f"m{_n(-s - 1)} 0h{_n(2 * s + 2)}m{_n(-s - 1)} {_n(-s - 1)}v{_n(2 * s + 2)}",
    }
    path = f"M{_n(x)} {_n(y)}{paths[look.mark]}"
    if look.mark in ("cross", "plus"):
        return _path(path, stroke=look.colour, width=1.6)
    return _tag("path", d=path, fill=look.colour)


def _path(d: str, *, stroke: str, width: float) -> str:
    return _tag("path", d=d, fill="none", stroke=stroke, stroke_width=width)


def _dot(x: float, y: float, radius: float, colour: str) -> str:
    return _tag("circle", cx=x, cy=y, r=radius, fill=colour)


def _mean_and_std(cell: Cell) -> list[tuple[float, float]]:
    """Return one pair, or none of an empty cell."""
    return [] if cell.mean is None or cell.std is None else [(cell.mean, cell.std)]


def _named(row: Row) -> str:
    """Return the label, marked where runs depart from the size that was asked for."""
    return _short(row.label) + ("†" if any(cell.departures for cell in row.cells) else "")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def _width(text: str, size: float) -> float:
    """About how wide a text is, since the font is the viewer's."""
    return LETTER * size * len(text)


def _sheet_width(figure: Figure, needed: float) -> int:
    """Room for the panels, and for the title."""
    return math.ceil(max(needed, 2 * MARGIN + _width(f"{figure.id}: {figure.title}", 17)))


def _text(text: str, x: float, y: float, *, size: float, weight: str = "", anchor: str = "", **more: Any) -> str:
    plain = {"font_weight": weight, "text_anchor": anchor}
    given = {name: value for name, value in plain.items() if value}
    return _tag("text", text, x=x, y=y, font_size=size, **{"fill": INK, **given, **more})


def _tag(name: str, content: str = "", **attributes: Any) -> str:
    """Return an element; text in it is escaped, and elements in it stay as they are."""
    written = "".join(
        f" {key.replace('_', '-')}={quoteattr(_n(value) if isinstance(value, float) else str(value))}"
        for key, value in attributes.items()
    )
    if name in ("text", "title"):
        content = escape(NOT_IN_XML.sub("\ufffd", content))
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in points)


def _n(value: float) -> str:
    """Return a number with the digits that can be seen."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # + 0.0, since there is a minus zero
