"""Looking at runs: pages of HTML, and pictures of what they measured.

A plugin adds to the page with ``nnl_report_sections``; its target gets a `ReportedRun` and returns
a `ReportSection`. Names are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnl_core.report.curves import draw_curves
    from nnl_core.report.page import render_report
    from nnl_core.report.parts import Html, ReportSection, as_html, picture, table
    from nnl_core.report.run import ReportedRun

_HOMES = {
    "Html": "parts",
    "ReportSection": "parts",
    "ReportedRun": "run",
    "as_html": "parts",
    "draw_curves": "curves",
    "picture": "parts",
    "render_report": "page",
    "table": "parts",
}

__all__ = [
    "Html",
    "ReportSection",
    "ReportedRun",
    "as_html",
    "draw_curves",
    "picture",
    "render_report",
    "table",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
