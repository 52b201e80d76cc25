"""Metrics: numbers and tables of a whole data set, put together from batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from nnl_core import functions as F
from nnl_core.errors import ModelError
from nnl_core.graph.variable import Variable

Comparison: TypeAlias = Callable[[Variable, Variable], Variable]
Table: TypeAlias = npt.NDArray[np.float64]


class Metric:
    """The mean over all samples of what ``compare(output, target)`` gives.

    All that a metric knows of the batches so far is its array ``state``, which checkpoints keep
    and `merge` combines. Subclasses override `measure`, what a batch's program computes, `value`,
    and, where they are no sums over samples, `reset`, `add` and `merge`.

    ``higher_is_better`` holds where neither a record nor a project says otherwise.
    """

    higher_is_better: bool = True
    state: npt.NDArray[np.generic]

    def __init__(self, compare: Comparison | None = None) -> None:
        self._compare = compare
        self.reset()

    def measure(self, output: Variable, target: Variable) -> Variable:
        """Return what the program of a batch computes for this metric."""
        if self._compare is None:
            raise ModelError(f"metric {type(self).__name__} overrides neither measure nor compares")
        compared = self._compare(output, target)
        if not isinstance(compared, Variable):
            raise ModelError(f"it compares, and returns {compared!r}; return a variable")
        return F.mean(compared)

    def reset(self) -> None:
        """Forget all batches."""
        self.state = np.zeros(2)

    def add(self, measured: npt.NDArray[np.generic], count: int) -> None:
        """Take account of a batch of ``count`` samples; ``measured`` is not kept."""
        self.state = self.state + np.array([measured.mean(dtype=np.float64) * count, count])

    def merge(self, other: Self) -> None:
        """Take account of all batches of another metric of this kind."""
        if type(other) is not type(self):
            raise ModelError(
                f"metric {type(self).__name__} cannot be merged with {type(other).__name__}; "
                "merge two of one kind"
            )
        self.state = np.add(self.state, other.state)

    def value(self) -> float | Table:
        """Return the metric over all batches since `reset`; NaN where there were none."""
        total, count = self.state
        return float(total / count) if count else float("nan")


class Sums(Metric):
    """What `value`, which a subclass defines, makes of sums over all samples.

    ``measure`` returns a batch's sums, in any one shape; ``state`` is that of all batches, or 0.
    """

    def reset(self) -> None:
        """Forget all batches."""
        self.state = np.zeros(())

    def add(self, measured: npt.NDArray[np.generic], count: int) -> None:
        """Add a batch's sums."""
        self.state = self.state + measured.astype(np.float64)


class CountedMean(Sums):
    """A sum divided by how much was counted: ``measure`` returns both, as `counted` puts them."""

    def value(self) -> float:
        """Return the mean; NaN where nothing was counted."""
        total, count = np.broadcast_to(self.state, 2)
        return float(total / count) if count else float("nan")


def counted(values: Variable, counts: Variable) -> Variable:
    """Return the sums of ``values`` and ``counts``, which is 0 where a value does not count."""
    return F.stack(F.sum(values * counts), F.sum(counts))
