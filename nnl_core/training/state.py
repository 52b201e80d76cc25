"""Where a training run stands, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nnl_core.training.metrics import Table
    from nnl_core.training.tracking import Point


@dataclass(slots=True)
class TrainState:
    """Where a run stands: what a checkpoint must know to go on.

    ``batch`` counts the finished batches of ``epoch``, ``step`` and ``samples`` those of the whole
    run.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    samples: int = 0


class TrainResult(NamedTuple):
    """What a run came to.

    ``history`` has the metrics of every epoch, by names such as ``train/loss``, ``best`` the best
    value of each, ``tables`` the latest of those that are no numbers. ``stopped`` is the reason for
    an early end, or ``None``.
    """

    epochs: int
    steps: int
    seconds: float
    stopped: str | None
    history: list[dict[str, float]]
    best: Mapping[str, Point] = {}
    tables: Mapping[str, Table] = {}

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the last epoch."""
        return self.history[-1] if self.history else {}
