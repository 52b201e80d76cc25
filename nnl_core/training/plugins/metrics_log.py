"""Plugin ``metrics_log``: every reported number, as a line of JSON in the run's folder."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING

from nnl_core.errors import ConfigurationError
from nnl_core.hooks import ExceptionRaised, MetricReported, Plugin, TrainEnd, TrainStart

if TYPE_CHECKING:
    from io import TextIOWrapper

FILE_NAME = "metrics.jsonl"


class MetricsLogPlugin(Plugin):
    """Writes ``metrics.jsonl``: steps made, name, value and seconds since the start, by line.

    ``loss`` is that of a step; ``train/...`` and its like are those of an epoch.
    """

    name = "metrics_log"

    def __init__(self) -> None:
        self._file: TextIOWrapper | None = None
        self._started = 0.0

    def nnl_on_train_start(self, event: TrainStart) -> None:
        """Open the log."""
        if event.trainer.folder is None:
            raise ConfigurationError("metrics_log writes into a folder: give the trainer one")
        self._started = time.perf_counter()
        self._file = (event.trainer.folder / FILE_NAME).open("a", encoding="utf-8")

    def nnl_on_metric(self, event: MetricReported) -> None:
        """Write a line; what is not a number becomes null."""
        if self._file is None:
            return
        line = {
            "step": event.step,
            "name": event.name,
            "value": event.value if math.isfinite(event.value) else None,
            "seconds": round(time.perf_counter() - self._started, 3),
        }
        self._file.write(json.dumps(line) + "\n")

    def nnl_on_train_end(self, event: TrainEnd) -> None:
        """Close the log."""
        self._close()

    def nnl_on_exception(self, event: ExceptionRaised) -> None:
        """Close the log: what led to the exception is in it."""
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
