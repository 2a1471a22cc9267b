"""Data and the paper, which stand beside a checkout and not in it."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(__file__).parents[3] / "shared"
TEX = Path(os.environ.get("HOLDFAST_PAPER", SHARED / "paper.tex"))
