"""One page that shows stored results: everything inline, so that it opens from disk and needs no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path

from holdfast.report.page_data import Data

HERE = Path(__file__).parent


def html_page(data: Data) -> str:
    """Return the page that draws `data`; see `page_data`."""
    style = _read("page.css")
    script = _read("charts.js") + _read("page.js")
    parts = {
        "{{title}}": html.escape(f"Report on {data['folder']}"),
        "{{policy}}": f"default-src 'none'; style-src {_allowed(style)}; script-src {_allowed(script)}; img-src data:"
        + ("; connect-src 'self'" if data.get("watched") else ""),
        "{{style}}": style,
        "{{data}}": _inline(data),
        "{{script}}": script,
    }
    page = _read("page.html")
    pieces = []
    for name, text in parts.items():  # in their order, so that nothing is looked for in what was put in
        before, page = page.split(name)
        pieces += [before, text]
    return "".join([*pieces, page])


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _allowed(text: str) -> str:
    """Return the policy by which the browser runs this text and no other."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _inline(data: Data) -> str:
    """Return `data` as JSON in which nothing can end the element that it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
