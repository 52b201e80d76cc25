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
    from nnl_core.report.curves import draw_curves, each_alone
    from nnl_core.training.files import replacing
    from nnl_core.training.runs import RunSummary

    run = RunSummary(path.parent, "running", history=tuple(history))
    figure = draw_curves(each_alone([run]), foreground="black")
    with replacing(path) as draft:
        figure.savefig(draft, dpi=120, metadata={"Software": None})


def _has_matplotlib() -> bool:
    try:
        import matplotlib.figure  # noqa: F401 - only whether it can be had
    except ImportError:
        return False
    return True
