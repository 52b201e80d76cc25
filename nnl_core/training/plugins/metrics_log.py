"""Plugin ``metrics_log``: every reported number, as a line of JSON in the run's folder."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, cast

from nnl_core.errors import ConfigurationError
from nnl_core.hooks import (
    CheckpointLoad,
    CheckpointSave,
    ExceptionRaised,
    MetricReported,
    Plugin,
    TrainEnd,
    TrainStart,
)

if TYPE_CHECKING:
    from nnl_core.training.log_file import LogFile

FILE_NAME = "metrics.jsonl"


class MetricsLogPlugin(Plugin):
    """Writes ``metrics.jsonl``: steps made, name, value and seconds since the start, by line.

    ``loss`` is that of a step; ``train/...`` and its like are those of an epoch. A run that goes
    on from a checkpoint goes on with its log, too, without a line twice.
    """

    name = "metrics_log"

    def __init__(self) -> None:
        self._file: LogFile | None = None
        self._started = 0.0
        self._before: dict[str, float] = {}  # length and seconds of a run that goes on

    def nnl_on_train_start(self, event: TrainStart) -> None:
        """Open the log."""
        if event.trainer.folder is None:
            raise ConfigurationError("metrics_log writes into a folder: give the trainer one")
        from nnl_core.training.log_file import LogFile

        before, self._before = self._before, {}
        self._started = time.perf_counter() - before.get("seconds", 0.0)
        length = int(before["bytes"]) if before else None
        self._file = LogFile(event.trainer.folder / FILE_NAME, length)

    def nnl_on_checkpoint_save(self, event: CheckpointSave) -> None:
        """Note how long the log is."""
        if self._file is not None:
            event.checkpoint.plugins[self.name] = {
                "bytes": self._file.length(),
                "seconds": time.perf_counter() - self._started,
            }

    def nnl_on_checkpoint_load(self, event: CheckpointLoad) -> None:
        """Take note of how long the log was."""
        self._before = cast("dict[str, float]", event.checkpoint.plugins.get(self.name, {}))

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
        self._file.write(json.dumps(line))

    def nnl_on_train_end(self, event: TrainEnd) -> None:
        """Close the log."""
        self._close()

    def nnl_on_exception(self, event: ExceptionRaised) -> None:
        """Close the log: what led to the exception is in it."""
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
