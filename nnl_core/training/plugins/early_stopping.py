"""Plugin ``early_stopping``: the end of a run whose metric gets no better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nnl_core.hooks import EpochEnd, Plugin, SettingsSpec, TrainStart

if TYPE_CHECKING:
    from nnl_core.training.plugins.settings import EarlyStoppingSettings


class EarlyStoppingPlugin(Plugin):
    """Stops a run after so many measurements of a metric without a better one.

    It keeps no state: what a run measured so far decides, also where it goes on from a checkpoint.
    """

    name = "early_stopping"
    _settings: EarlyStoppingSettings

    def nnl_settings(self) -> Iterable[SettingsSpec]:
        """Declare metric, patience, least improvement and direction."""
        target = "nnl_core.training.plugins.settings:EarlyStoppingSettings"
        return [SettingsSpec(self.name, target, "which metric, and how patient")]

    def nnl_on_train_start(self, event: TrainStart) -> None:
        """Read the settings."""
        from nnl_core.training.plugins.settings import EarlyStoppingSettings

        session = event.trainer.session
        self._settings = session.plugin_settings(self.name, EarlyStoppingSettings)

    def nnl_on_epoch_end(self, event: EpochEnd) -> None:
        """Look at all measurements so far."""
        settings, trainer = self._settings, event.trainer
        is_due = (event.epoch + 1) % trainer.evaluate_every == 0
        if trainer.stop_reason is not None or not (
            is_due or settings.metric in trainer.tracker.names
        ):
            return
        points = trainer.tracker.points(settings.metric)  # an error names a metric there is not
        rises = trainer.tracker.rises(
            settings.metric, None if settings.mode is None else settings.mode == "max"
        )
        count = without_improvement([p.value for p in points], settings.min_delta, rises=rises)
        if count >= settings.patience:
            trainer.request_stop(f"{settings.metric} got no better {count} times")


def without_improvement(values: Sequence[float], min_delta: float, *, rises: bool) -> int:
    """Count the last values that are not better, by more than ``min_delta``, than one before."""
    best, count = float("nan"), 0
    for value in values:
        gain = value - best if rises else best - value
        if gain > min_delta or (best != best and value == value):  # NaN is worse than any number
            best, count = value, 0
        else:
            count += 1
    return count
