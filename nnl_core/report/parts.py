"""What a report's sections are made of: text, tables, figures and pictures, all escaped."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nnl_core.errors import ConfigurationError

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

FOREGROUND = "#0a0b0c"  # in figures; becomes the page's own colour


class Html(str):
    """Text that is HTML, and put into the page as it is: whoever makes it escapes what is in it."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


class ReportSection(NamedTuple):
    """A part of a report: a title, and what comes below it.

    ``parts`` are `Html`, figures of matplotlib, and texts, each of which becomes a paragraph.
    """

    title: str
    parts: Sequence[str | Figure]


def as_html(part: str | Figure) -> Html:
    """Return a section's part as HTML."""
    if isinstance(part, Html):
        return part
    if isinstance(part, str):
        return _render("paragraph.html.j2", text=part)
    return _svg(part)


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> Html:
    """Return a table; columns of numbers are set to the right, floats with four digits."""
    cells = [list(row) for row in rows]
    numeric = [
        bool(found) and all(isinstance(cell, int | float) for cell in found)
        for found in ([row[n] for row in cells if row[n] is not None] for n in range(len(head)))
    ]
    return _render(
        "table.html.j2",
        head=list(zip(map(str, head), numeric, strict=True)),
        rows=[list(zip(map(cell_text, row), numeric, strict=True)) for row in cells],
    )


def side_by_side(figures: Iterable[Figure]) -> Html:
    """Return figures beside one another, as many as there is room for."""
    return _render("figures.html.j2", parts=[as_html(figure) for figure in figures])


def folded(summary: str, part: Html) -> Html:
    """Return what is shown only after a click on its summary."""
    return _render("folded.html.j2", summary=summary, part=part)


def cards(items: Iterable[tuple[Html, Sequence[str]]]) -> Html:
    """Return pictures (or other HTML) side by side, each with lines below it."""
    return _render("cards.html.j2", items=list(items))


def cell_text(value: object) -> str:
    """Return what a table shows of a value."""
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)


def picture(image: npt.NDArray[Any], label: str) -> Html:
    """Return a grey (height, width) or RGB (height, width, 3) image, inlined.

    Its smallest value becomes black and its largest white. ``label`` is read out where it cannot be
    seen.
    """
    require("PIL")
    from PIL import Image

    values = np.nan_to_num(np.asarray(image, np.float64), posinf=0.0, neginf=0.0)
    low, high = float(values.min(initial=math.inf)), float(values.max(initial=-math.inf))
    span = high - low if high > low else 1.0
    levels = np.rint((values - low) / span * 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(levels).save(file, "png")
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return _render("picture.html.j2", data=data, label=label)


def _svg(figure: Figure) -> Html:
    """Return a figure as SVG that takes its text's colour and font from the page."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "report"}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(FOREGROUND, "currentColor")
    used = set(re.findall(r"#([\w-]+)", text))  # of the rest, several figures have the same
    text = re.sub(r' id="([\w-]+)"', lambda m: m[0] if m[1] in used else "", text)
    return Html(f'<div class="figure">{text}</div>')


@contextmanager
def inked(colour: str = FOREGROUND) -> Iterator[None]:
    """Let figures that are drawn in a block have text and axes of a colour."""
    require("matplotlib")
    import matplotlib

    with matplotlib.rc_context(
        {
            "text.color": colour,
            "axes.edgecolor": colour,
            "axes.labelcolor": colour,
            "xtick.color": colour,
            "ytick.color": colour,
            "font.size": 9,
            "text.parse_math": False,  # names are no formulas
        }
    ):
        yield


def require(name: str) -> None:
    """Raise ConfigurationError where a module of the extra ``standard`` is missing."""
    if find_spec(name) is None:
        raise ConfigurationError(f"this needs {name}; install it, or nnl-core[standard]")


@cache
def _environment() -> Environment:
    require("jinja2")
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("nnl_core.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _render(template: str, **values: object) -> Html:
    return Html(_environment().get_template(template).render(**values))


def render_page(**values: object) -> str:
    """Return the page around the sections."""
    return str(_render("page.html.j2", **values))
