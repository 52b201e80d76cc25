"""Plugin ``learning_curve``: a picture of the epochs' metrics in the run's folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnl_core.errors import ConfigurationError
from nnl_core.hooks import Plugin, TrainEnd, TrainStart

FILE_NAME = "learning_curve.png"


class LearningCurvePlugin(Plugin):
    """Draws ``learning_curve.png`` at the end of a run: one panel for each kind of number."""

    name = "learning_curve"

    def nnl_on_train_start(self, event: TrainStart) -> None:
        """Say at once what would be missing at the end."""
        if event.trainer.folder is None:
            raise ConfigurationError("learning_curve writes into a folder: give the trainer one")
        if not _has_matplotlib():
            print("learning_curve: no picture, since matplotlib is not installed", file=sys.stderr)

    def nnl_on_train_end(self, event: TrainEnd) -> None:
        """Draw the epochs so far."""
        trainer = event.trainer
        if trainer.folder is not None and trainer.history and _has_matplotlib():
            draw(trainer.history, trainer.folder / FILE_NAME)


def draw(history: Sequence[Mapping[str, float]], path: Path) -> None:
    """Draw the metrics of epochs: ``train/loss`` and ``test/loss`` share the panel ``loss``."""
    # The object interface: pyplot would keep state of the whole process, and may open a window.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from nnl_core.training.files import replacing

    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for epoch, metrics in enumerate(history, 1):
        for name, value in metrics.items():
            part, _, kind = name.rpartition("/")
            panels.setdefault(kind, {}).setdefault(part or kind, []).append((epoch, value))
    figure = Figure(figsize=(5 * len(panels), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (kind, lines) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), place)
        for part, points in lines.items():
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=part)
        axes.set_xlabel("epoch")
        axes.set_ylabel(kind)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend()
    with replacing(path) as draft:
        figure.savefig(draft, dpi=120, metadata={"Software": None})


def _has_matplotlib() -> bool:
    try:
        import matplotlib.figure  # noqa: F401 - only whether it can be had
    except ImportError:
        return False
    return True
