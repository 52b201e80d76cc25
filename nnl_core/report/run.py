"""A run that a report is about: its numbers, and its model and data where they can be had."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from nnl_core.errors import DataError
from nnl_core.training.runs import RunSummary

if TYPE_CHECKING:
    from pathlib import Path

    from nnl_core.data import DataSource
    from nnl_core.report.examine import Examination
    from nnl_core.session import Session
    from nnl_core.training.model import Model
    from nnl_core.training.project import Workbench

LIMIT = 10_000


class Opened(NamedTuple):
    """What a run is opened with: its workbench, and the file of its parameters."""

    workbench: Workbench
    parameters: Path


class ReportedRun:
    """What the target of a `ReportSectionSpec` is called with.

    ``summary`` is always there. All else is made when it is asked for, and raises an `NnlError`
    that says why it cannot be had: the run has no parameters yet, its data has gone.

    ``data_name`` names the data set that samples are taken from, by default the first of ``test``,
    ``validation`` and ``train`` that there is; ``limit`` is how many samples are looked at.
    """

    def __init__(
        self,
        summary: RunSummary,
        session: Session,
        opened: Opened | str,
        *,
        data_name: str | None = None,
        limit: int = LIMIT,
    ) -> None:
        self.summary = summary
        self.session = session
        self.limit = limit
        self._opened = opened
        self._data_name = data_name

    @property
    def workbench(self) -> Workbench:
        """What makes the parts of the run's project."""
        return self._open().workbench

    @property
    def parameter_file(self) -> Path:
        """Where the parameters are."""
        return self._open().parameters

    def _open(self) -> Opened:
        if isinstance(self._opened, str):
            raise DataError(self._opened)
        return self._opened

    @property
    def data_name(self) -> str:
        """The data set that samples are taken from."""
        known = self.workbench.settings.data
        if self._data_name is not None:
            return self._data_name
        for name in ("test", "validation", "train"):
            if name in known:
                return name
        raise DataError("the project has no data")

    @cached_property
    def data(self) -> DataSource:
        """The data set ``data_name``."""
        return self.workbench.data(self.data_name)

    @cached_property
    def model(self) -> Model:
        """The model with the run's parameters."""
        model = self.workbench.model()
        model.load(self.parameter_file)
        return model

    @cached_property
    def examination(self) -> Examination:
        """What the model makes of the first samples of ``data``."""
        from nnl_core.report.examine import examine

        return examine(self.model, self.data, self.limit)
