"""Pictures of what runs measured, epoch by epoch: one run, several, or their means."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from nnl_core.errors import DataError
from nnl_core.hooks.loading import did_you_mean
from nnl_core.report.parts import FOREGROUND, inked
from nnl_core.training.runs import RunSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart on white and on black, and by those who do not see red or green.
COLOURS = ("#3f7fe8", "#e07b28", "#2f9e78", "#b765c9", "#c79a1e", "#4aa3c7", "#d05a6e", "#7d8793")
STYLES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
Colour: TypeAlias = str | tuple[float, float, float, float]
PER_ROW = 3


class Line(NamedTuple):
    """A metric by epoch; ``spread`` is the deviation around it, where it is a mean of runs."""

    label: str
    part: str
    epochs: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64] | None = None


class Group(NamedTuple):
    """Runs that are drawn as one, under a label."""

    label: str
    runs: Sequence[RunSummary]


def each_alone(runs: Iterable[RunSummary]) -> list[Group]:
    """Return a group for each run, called like the run, or its folder where that says too little.

    Runs without any epoch are left out.
    """
    drawn = [run for run in runs if run.history]
    names = [run.name for run in drawn]
    return [Group(run.name if names.count(run.name) == 1 else run.title, [run]) for run in drawn]


def repeated(runs: Iterable[RunSummary]) -> list[Group]:
    """Return a group for all runs whose settings differ in the seed alone."""
    found: dict[str, list[RunSummary]] = {}
    for run in runs:
        if run.history:
            settings = deepcopy(dict(run.settings))
            if isinstance(settings.get("train"), dict):
                settings["train"].pop("seed", None)
            found.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(run)
    names = [same[0].name for same in found.values()]
    return [
        Group(
            (name if names.count(name) == 1 else same[0].title)
            + (f" ({len(same)} runs)" if len(same) > 1 else ""),
            same,
        )
        for name, same in zip(names, found.values(), strict=True)
    ]


def panels_of(
    groups: Sequence[Group], metrics: Sequence[str] | None = None
) -> dict[str, list[Line]]:
    """Return the lines to draw, by what is measured: ``train/loss`` and ``test/loss`` are one.

    ``metrics`` are names such as ``test/accuracy``, or ``loss`` for those of all data. Raises
    DataError where no run has one of them.
    """
    measured = dict.fromkeys(
        name for group in groups for run in group.runs for epoch in run.history for name in epoch
    )
    if not measured:
        raise DataError("there is nothing to draw: no epoch of these runs is over")
    for name in metrics or ():
        if not any(_is_wanted(known, [name]) for known in measured):
            hint = did_you_mean(name, measured) or f"; they have {', '.join(measured)}"
            raise DataError(f"these runs have no metric {name!r}{hint}")
    panels: dict[str, list[Line]] = {}
    for name in measured:
        if metrics is None or _is_wanted(name, metrics):
            part, _, kind = name.rpartition("/")
            lines = panels.setdefault(kind, [])
            lines += [line for group in groups if (line := _line(group, name, part)) is not None]
    return panels


def _is_wanted(name: str, metrics: Sequence[str]) -> bool:
    return name in metrics or name.rpartition("/")[2] in metrics


def _line(group: Group, name: str, part: str) -> Line | None:
    """Return a metric's mean over those epochs that all runs of a group have it of."""
    series = [
        {epoch: metrics[name] for epoch, metrics in enumerate(run.history, 1) if name in metrics}
        for run in group.runs
    ]
    common = sorted(set.intersection(*(set(values) for values in series)))
    if not common:
        return None
    values = np.array([[found[epoch] for epoch in common] for found in series])
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else None
    return Line(group.label, part, np.array(common), values.mean(axis=0), spread)


def draw_curves(
    groups: Sequence[Group], metrics: Sequence[str] | None = None, *, foreground: str = FOREGROUND
) -> Figure:
    """Return a figure with a panel for each kind of number.

    Of one group, data sets have colours; of several, groups do, and data sets have line styles. A
    band is one deviation wide on both sides of a mean.
    """
    panels = panels_of(groups, metrics)
    columns = min(PER_ROW, len(panels))
    rows = -(-len(panels) // columns)
    labels = [group.label for group in groups]
    crowded = len(labels) > len(COLOURS)  # no legend of so many has room in a panel
    width, height = max(4.6 * columns, 5.2), 3.4 * rows
    if crowded:
        width, height = width + 3.2, max(height, 0.21 * len(labels) + 0.8)
    with inked(foreground):
        # The object interface: pyplot would keep state of the whole process, and may open a window.
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        for place, (kind, lines) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(rows, columns, place)
            _draw_panel(axes, kind, lines, labels if len(labels) > 1 else [])
            if not crowded:
                axes.legend(frameon=False)
        if crowded:
            _draw_key(figure, labels, [line for lines in panels.values() for line in lines])
    return figure


def _colour(number: int, count: int) -> Colour:
    """Return the colour of one of so many lines: of more than there are, a place on a scale."""
    if count <= len(COLOURS):
        return COLOURS[number]
    from matplotlib import colormaps

    return colormaps["turbo"](0.05 + 0.9 * number / (count - 1))


def _draw_key(figure: Figure, labels: Sequence[str], lines: Iterable[Line]) -> None:
    """Say beside the panels which colour a group has, and which style a data set."""
    from matplotlib.lines import Line2D

    keys = [
        Line2D([], [], color=_colour(number, len(labels)), label=label)
        for number, label in enumerate(labels)
    ]
    parts = list(dict.fromkeys(line.part for line in lines))
    if len(parts) > 1:
        keys += [
            Line2D([], [], color=COLOURS[-1], linestyle=STYLES[number % len(STYLES)], label=part)
            for number, part in enumerate(parts)
        ]
    figure.legend(handles=keys, loc="outside right upper", frameon=False, fontsize="small")


def _draw_panel(axes: Axes, kind: str, lines: Sequence[Line], groups: Sequence[str]) -> None:
    """Draw one kind of number; ``groups`` are the labels that have colours, of several groups."""
    from matplotlib.ticker import MaxNLocator

    parts = list(dict.fromkeys(line.part for line in lines))
    for line in lines:
        number = groups.index(line.label) if groups else parts.index(line.part)
        colour = _colour(number, len(groups)) if groups else COLOURS[number % len(COLOURS)]
        style = STYLES[(parts.index(line.part) if groups else 0) % len(STYLES)]
        label = f"{line.label} {line.part}".strip() if groups else line.part or line.label
        marker = "o" if len(line.epochs) <= 40 else ""
        axes.plot(
            line.epochs, line.values, style, color=colour, label=label, marker=marker, markersize=3
        )
        if line.spread is not None:
            low, high = line.values - line.spread, line.values + line.spread
            axes.fill_between(line.epochs, low, high, color=colour, alpha=0.2, linewidth=0)
    if not groups and lines[0].spread is not None:
        axes.set_title(lines[0].label, size="medium")
    axes.set_xlabel("epoch")
    axes.set_ylabel(kind)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
