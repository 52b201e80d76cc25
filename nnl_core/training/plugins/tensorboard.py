"""Plugin ``tensorboard``: every reported number, where TensorBoard finds it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nnl_core.errors import ConfigurationError
from nnl_core.hooks import ExceptionRaised, MetricReported, Plugin, TrainEnd, TrainStart

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

FOLDER = "tensorboard"


class TensorboardPlugin(Plugin):
    """Writes an event file into the folder ``tensorboard`` of the run.

    Needs the distribution tensorboard: the extra ``tensorboard`` of nnl-core.
    """

    name = "tensorboard"

    def __init__(self) -> None:
        self._writer: EventFileWriter | None = None

    def nnl_on_train_start(self, event: TrainStart) -> None:
        """Open the file; where a run goes on, what it made twice counts once."""
        trainer = event.trainer
        if trainer.folder is None:
            raise ConfigurationError("tensorboard writes into a folder: give the trainer one")
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ConfigurationError(
                f"the plugin tensorboard needs the distribution of that name ({error}); "
                "install nnl-core[tensorboard]"
            ) from error
        self._writer = EventFileWriter(str(trainer.folder / FOLDER))
        if trainer.state.step:
            again = SessionLog(status=SessionLog.START)
            self._writer.add_event(
                Event(step=trainer.state.step + 1, wall_time=time.time(), session_log=again)
            )

    def nnl_on_metric(self, event: MetricReported) -> None:
        """Write a number."""
        if self._writer is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        value = Summary.Value(tag=event.name, simple_value=event.value)
        self._writer.add_event(
            Event(step=event.step, wall_time=time.time(), summary=Summary(value=[value]))
        )

    def nnl_on_train_end(self, event: TrainEnd) -> None:
        """Close the file."""
        self._close()

    def nnl_on_exception(self, event: ExceptionRaised) -> None:
        """Close the file: what led to the exception is in it."""
        self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
