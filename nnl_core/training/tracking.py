"""What a run measured, and when it was at its best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nnl_core.errors import TrainingError
from nnl_core.hooks.loading import did_you_mean
from nnl_core.training.metrics import Table


class Point(NamedTuple):
    """A metric after so many steps, in the epoch of this number (from 1)."""

    value: float
    epoch: int
    step: int


class MetricHistory:
    """The metrics of a run, by names such as ``validation/accuracy``.

    ``higher_is_better`` has directions by a metric's whole name, or by its last part; ``loss`` is
    better where it is lower, all else where it is higher. ``tables`` are the latest of those
    metrics that are no single numbers, such as a confusion matrix.
    """

    def __init__(self, higher_is_better: Mapping[str, bool] | None = None) -> None:
        self.higher_is_better = {"loss": False, **(higher_is_better or {})}
        self.tables: dict[str, Table] = {}
        self._points: dict[str, list[Point]] = {}

    def record(
        self,
        metrics: Mapping[str, float],
        tables: Mapping[str, Table] | None = None,
        *,
        epoch: int,
        step: int,
    ) -> None:
        """Add what was measured; what was so after no fewer steps is forgotten.

        That happens where an epoch goes on whose first part was measured, or is made again.
        """
        for name, value in metrics.items():
            points = self._points.setdefault(name, [])
            while points and points[-1].step >= step:
                points.pop()
            points.append(Point(value, epoch, step))
        self.tables |= tables or {}

    @property
    def names(self) -> list[str]:
        """The metrics that were measured."""
        return list(self._points)

    def points(self, name: str) -> list[Point]:
        """Return a metric's values, the oldest first.

        Raises TrainingError where it was not measured.
        """
        if name not in self._points:
            known = ", ".join(self._points) or "no metric so far"
            hint = did_you_mean(name, self._points) or f"; it measured {known}"
            raise TrainingError(f"the run did not measure {name!r}{hint}")
        return list(self._points[name])

    def rises(self, name: str, higher_is_better: bool | None = None) -> bool:
        """Whether a metric is better where it is higher; ``higher_is_better`` overrides."""
        if higher_is_better is not None:
            return higher_is_better
        last = name.rpartition("/")[2]
        return self.higher_is_better.get(name, self.higher_is_better.get(last, True))

    def best(self, name: str, higher_is_better: bool | None = None) -> Point:
        """Return the best value, of equal ones the first; NaN is worse than any number."""
        return self.top(name, 1, higher_is_better)[0]

    def top(self, name: str, count: int, higher_is_better: bool | None = None) -> list[Point]:
        """Return the best values, the very best first."""
        sign = -1 if self.rises(name, higher_is_better) else 1
        ranked = sorted(
            self.points(name), key=lambda point: (math.isnan(point.value), sign * point.value)
        )
        return ranked[:count]

    def is_best(self, name: str, higher_is_better: bool | None = None) -> bool:
        """Whether the latest value is better than all before it, and a number."""
        latest = self.points(name)[-1]
        return self.best(name, higher_is_better) == latest and not math.isnan(latest.value)

    def summary(self) -> dict[str, Point]:
        """Return the best value of each metric."""
        return {name: self.best(name) for name in self._points}

    # ---------------------------------------------------------------- for checkpoints

    def get_state(self) -> dict[str, Any]:
        """Return arrays by name: of points, with a row for each, and tables."""
        return {
            "points": {name: np.array(points, np.float64) for name, points in self._points.items()},
            "tables": {name: np.array(table) for name, table in self.tables.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` returned; directions stay."""
        self._points = {
            name: [Point(float(value), int(epoch), int(step)) for value, epoch, step in points]
            for name, points in state["points"].items()
        }
        self.tables = {name: np.asarray(table) for name, table in state["tables"].items()}
