"""Plugin ``gradient_watch``: how large gradients are, among the reported numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nnl_core.hooks import Plugin, SettingsSpec, TrainStart, UpdateStart


class GradientWatchPlugin(Plugin):
    """Reports ``gradient_norm`` and ``gradient_norm/NAME`` of each parameter, every so many steps.

    They are the norms before clipping and weight decay. A step is two programs where this listens.
    """

    name = "gradient_watch"
    _every = 1

    def nnl_settings(self) -> Iterable[SettingsSpec]:
        """Declare how often."""
        target = "nnl_core.training.plugins.settings:GradientWatchSettings"
        return [SettingsSpec(self.name, target, "how often norms are reported")]

    def nnl_on_train_start(self, event: TrainStart) -> None:
        """Read the settings."""
        from nnl_core.training.plugins.settings import GradientWatchSettings

        settings = event.trainer.session.plugin_settings(self.name, GradientWatchSettings)
        self._every = settings.every

    def nnl_on_update_start(self, event: UpdateStart) -> None:
        """Report the norms."""
        if event.step % self._every:
            return
        import numpy as np

        from nnl_core.graph.backend import current_backend

        backend, squares = current_backend(), 0.0
        for name, gradient in event.gradients.by_name.items():
            norm = float(np.linalg.norm(backend.to_host(gradient).astype(np.float64)))
            squares += norm * norm
            event.trainer.report(f"gradient_norm/{name}", norm)
        event.trainer.report("gradient_norm", math.sqrt(squares))
