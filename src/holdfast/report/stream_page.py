"""A page about one stream that was learned row by row: everything inline, no script, no network."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TypedDict

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 260, 48, 30, 12
COLOURS = ("#0b61a4", "#b4520b")  # of the window and of the faded accuracy
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1c1c1c;background:#fff;max-width:48rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}svg{width:100%;height:auto}
table{border-collapse:collapse;display:block;overflow-x:auto}
td,th{padding:.2rem .8rem .2rem 0;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}p.note{color:#555}
"""


class StreamFacts(TypedDict):
    """Content of the page.

    `curve` has the number of rows, the accuracy of the last 1,000 and the faded one, as shares; `by_class` right rows,
    all rows, and samples in memory by label; `alarms` the rows at which the error rate had risen.
    """

    title: str
    facts: Mapping[str, str]
    curve: Sequence[Sequence[float]]
    by_class: Mapping[str, tuple[int, int, int]]
    alarms: Sequence[int]


def stream_page(given: StreamFacts) -> str:
    """Return the page as HTML."""
    title = html.escape(given["title"])
    facts = "".join(f"<tr><td>{_safe(name)}</td><td>{_safe(value)}</td></tr>" for name, value in given["facts"].items())
    rows = "".join(
        f"<tr><td>{_safe(name)}</td><td>{n:,}</td><td>{100 * right / max(n, 1):.1f}</td><td>{stored:,}</td></tr>"
        for name, (right, n, stored) in given["by_class"].items()
    )
    alarms = ", ".join(f"{row:,}" for row in given["alarms"][:50]) or "none"
    if len(given["alarms"]) > 50:
        alarms += f" and {len(given['alarms']) - 50} more"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
        '<p class="note">Each row was predicted before it was learned.</p>'
        f"<table>{facts}</table><h2>Accuracy over time</h2>{_curve(given)}"
        f"<p>Rows at which the error rate had risen (ADWIN): {alarms}.</p>"
        "<h2>By class</h2><table><tr><th>class</th><th>rows</th><th>accuracy (%)</th><th>in memory</th></tr>"
        f"{rows}</table></body></html>\n"
    )


def _curve(given: StreamFacts) -> str:
    curve = given["curve"]
    if len(curve) < 2:
        return "<p>Too few rows for a curve.</p>"
    end = curve[-1][0]
    low = max(0.0, min(min(point[1:]) for point in curve) - 0.05)

    def x(row: float) -> float:
        return LEFT + (WIDTH - LEFT - 8) * row / end

    def y(share: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share) / (1 - low)

    parts = []
    for i in range(5):
        share = low + (1 - low) * i / 4
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y(share):.1f}" y2="{y(share):.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, y(share) + 4, f"{100 * share:.0f}", "end"))
    parts += [_text(x(end * i / 4), HEIGHT - 8, f"{end * i / 4:,.0f}", "end" if i else "start") for i in range(5)]
    parts += [
        f'<path d="M{x(row):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#999" stroke-dasharray="3"/>'
        for row in given["alarms"]
    ]
    names = ("last 1,000 rows", "faded")
    for place, (colour, name) in enumerate(zip(COLOURS, names, strict=True)):
        points = " ".join(f"{x(point[0]):.1f},{y(point[1 + place]):.1f}" for point in curve)
        dashed = ' stroke-dasharray="6 3"' if place else ""
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8"{dashed} points="{points}"/>')
        parts.append(_text(LEFT + 12 + 150 * place, TOP + 12, name, "start", colour))
    label = f"accuracy in percent over {end:,.0f} rows; dotted lines are alarms"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#555") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}" fill="{colour}">{_safe(text)}</text>'


def _safe(text: str) -> str:
    return html.escape(text)
