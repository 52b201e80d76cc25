"""Plugin ``learning_rate_finder``: a sweep of the learning rate in place of a training."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from nnl_core.hooks import Plugin, SettingsSpec

if TYPE_CHECKING:
    from nnl_core.training import Trainer, TrainResult
    from nnl_core.training.rate_sweep import RateSweep

TABLE, PICTURE = "learning_rates.csv", "learning_rates.png"


class LearningRateFinderPlugin(Plugin):
    """Raises the learning rate from step to step (Smith, 2017) and looks at the loss.

    The run ends with a suggestion: the rate at which the loss falls fastest. Nothing is learnt: the
    model is afterwards what it was before. ``learning_rates.csv``, and a picture where matplotlib
    is there, go into the run's folder.
    """

    name = "learning_rate_finder"

    def nnl_settings(self) -> Iterable[SettingsSpec]:
        """Declare the range of rates and the number of steps."""
        target = "nnl_core.training.plugins.settings:LearningRateFinderSettings"
        return [SettingsSpec(self.name, target, "which rates, in how many steps")]

    def nnl_run_training(self, trainer: Trainer) -> TrainResult | None:
        """Sweep, write the curve and say what it suggests."""
        from nnl_core.training.plugins.settings import LearningRateFinderSettings
        from nnl_core.training.rate_sweep import sweep
        from nnl_core.training.state import TrainResult

        started = time.perf_counter()
        settings = trainer.session.plugin_settings(self.name, LearningRateFinderSettings)
        found = sweep(trainer, **settings.model_dump())
        if trainer.folder is not None:
            write(found, trainer.folder)
        if found.suggestion is None:
            advice = "the loss fell at none of them"
        else:
            advice = f"try {found.suggestion:.2g}, where the loss fell fastest"
        most = f"up to {found.rates[-1]:.2g}" if found.rates else "at no step"
        reason = f"tried learning rates {most}: {advice}"
        return TrainResult(0, 0, time.perf_counter() - started, reason, [])


def write(found: RateSweep, folder: Path) -> None:
    """Write the curve as a table and, where matplotlib is there, as a picture."""
    from nnl_core.training.files import replacing

    text = io.StringIO()
    rows = zip(found.rates, found.losses, found.smoothed, strict=True)
    csv.writer(text, lineterminator="\n").writerows([("rate", "loss", "smoothed"), *rows])
    with replacing(folder / TABLE) as draft:
        draft.write_text(text.getvalue(), "utf-8")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.semilogx(found.rates, found.losses, alpha=0.3, label="loss")
    axes.semilogx(found.rates, found.smoothed, label="smoothed")
    if found.suggestion is not None:
        axes.axvline(found.suggestion, linestyle=":", label=f"{found.suggestion:.2g}")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.legend()
    with replacing(folder / PICTURE) as draft:
        figure.savefig(draft, dpi=120, metadata={"Software": None})
