"""Plugin ``csv_log``: the metrics of each epoch, as a line of a table in the run's folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnl_core.errors import ConfigurationError
from nnl_core.hooks import EpochEnd, Plugin, TrainStart

FILE_NAME = "metrics.csv"


class CsvLogPlugin(Plugin):
    """Writes ``metrics.csv``: a line for each epoch, a column for each metric.

    What was not measured in an epoch is an empty cell.
    """

    name = "csv_log"

    def __init__(self) -> None:
        self._columns: list[str] = []

    def nnl_on_train_start(self, event: TrainStart) -> None:
        """Say at once where there is no place to write to."""
        if event.trainer.folder is None:
            raise ConfigurationError("csv_log writes into a folder: give the trainer one")
        self._columns = []

    def nnl_on_epoch_end(self, event: EpochEnd) -> None:
        """Add a line, or write the table anew where columns came or a run went on."""
        history, folder = event.trainer.history, event.trainer.folder
        assert folder is not None
        columns = list(dict.fromkeys(name for metrics in history for name in metrics))
        path = folder / FILE_NAME
        if columns == self._columns:
            with path.open("a", encoding="utf-8", newline="") as file:
                file.write(_lines([_row(len(history), history[-1], columns)]))
            return
        write(history, columns, path)
        self._columns = columns


def write(history: Sequence[Mapping[str, float]], columns: Sequence[str], path: Path) -> None:
    """Write the whole table, or leave what is there."""
    from nnl_core.training.files import replacing

    rows = [_row(epoch, metrics, columns) for epoch, metrics in enumerate(history, 1)]
    with replacing(path) as draft:
        draft.write_text(_lines([["epoch", *columns], *rows]), "utf-8")


def _row(epoch: int, metrics: Mapping[str, float], columns: Sequence[str]) -> list[object]:
    return [epoch, *(metrics.get(name, "") for name in columns)]


def _lines(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
