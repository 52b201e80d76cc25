"""Sections about samples: which classes are mistaken, and where the model does worst."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nnl_core.data.source import Array
from nnl_core.report.curves import COLOURS
from nnl_core.report.examine import Examination
from nnl_core.report.parts import (
    Html,
    ReportSection,
    as_html,
    cards,
    cell_text,
    inked,
    picture,
    table,
)
from nnl_core.report.run import ReportedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORST = 16
READABLE = 20  # classes up to which the counts stand in the squares
DRAWN = 100
SHOWN = 8  # elements of a sample that is no image


def confusion_matrix(run: ReportedRun) -> ReportSection | None:
    """Draw how often each class was taken for each, where the model tells classes apart."""
    counts = run.examination.confusion()
    if counts is None:
        return None
    right, total = int(np.trace(counts)), int(counts.sum())
    text = f"{right:,} of {_which(run)} are recognised ({right / max(total, 1):.2%})."
    mistaken = counts.copy()
    np.fill_diagonal(mistaken, 0)
    most = np.argsort(-mistaken, axis=None, kind="stable")[:10]
    pairs = [(int(n) // len(counts), int(n) % len(counts)) for n in most]
    rows = [(a, b, int(mistaken[a, b])) for a, b in pairs if mistaken[a, b]]
    parts: list[str | Figure] = [text]
    if len(counts) <= DRAWN:
        parts.append(_draw(counts))
    if rows:
        parts.append(table(("class", "taken for", "times"), rows))
    return ReportSection("Confusion matrix", parts)


def _draw(counts: Array) -> Figure:
    size = float(np.clip(0.42 * len(counts) + 1.4, 3.0, 9.0))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with inked():
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure

        shades = LinearSegmentedColormap.from_list("shades", [f"{COLOURS[0]}00", COLOURS[0]])
        figure = Figure(figsize=(size, size), layout="constrained")
        axes = figure.add_subplot()
        axes.imshow(shares, cmap=shades, vmin=0, vmax=1)
        if len(counts) <= READABLE:
            for (row, column), count in np.ndenumerate(counts):
                if count:
                    axes.text(column, row, str(count), ha="center", va="center", size=8)
            axes.set_xticks(range(len(counts)))
            axes.set_yticks(range(len(counts)))
        axes.set_xlabel("predicted")
        axes.set_ylabel("target")
    return figure


def worst_samples(run: ReportedRun) -> ReportSection | None:
    """Show the samples with the largest losses, as images where they are."""
    found = run.examination
    ids = found.worst(WORST)
    if not len(ids):
        return None
    assert found.losses is not None
    arrays = run.data.take(ids)
    inputs = {name: array for name, array in arrays.items() if name != run.model.target}
    items = [
        (_shown({name: array[row] for name, array in inputs.items()}), _lines(found, int(number)))
        for row, number in enumerate(ids)
    ]
    text = f"Those with the largest losses of {_which(run)}."
    return ReportSection("Worst samples", [text, cards(items)])


def _which(run: ReportedRun) -> str:
    total, seen = len(run.data), len(run.examination.output)
    first = "" if seen == total else f"the first {seen:,} of "
    return f"{first}{total:,} samples of the data set {run.data_name}"


def _shown(sample: dict[str, Array]) -> Html:
    """Return a sample's image, or else the first elements of its fields."""
    for name, array in sample.items():
        image = _image(array)
        if image is not None:
            return picture(image, name)
    texts = [f"{name}: {_values(array)}" for name, array in sample.items()]
    return Html("".join(as_html(text) for text in texts))


def _image(array: Array) -> Array | None:
    """Return an array as (height, width) or (height, width, 3), where it may be an image."""
    if array.ndim == 3 and array.shape[0] in (1, 3):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    is_image = array.ndim == 2 or (array.ndim == 3 and array.shape[-1] == 3)
    return array if is_image and min(array.shape[:2]) >= 4 else None


def _lines(found: Examination, number: int) -> list[str]:
    assert found.losses is not None
    lines = [f"sample {number}", f"loss {found.losses[number]:.4g}"]
    if found.labels is not None and found.predicted is not None:
        lines.append(f"target {found.labels[number]}, predicted {found.predicted[number]}")
    else:
        if found.target is not None:
            lines.append(f"target {_values(found.target[number])}")
        lines.append(f"predicted {_values(found.output[number])}")
    return lines


def _values(array: Array) -> str:
    first = array.reshape(-1)[:SHOWN]
    more = ", …" if array.size > SHOWN else ""
    return ", ".join(cell_text(value) for value in first.tolist()) + more
