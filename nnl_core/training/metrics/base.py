"""Metrics: numbers and tables of a whole data set, put together from batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from nnl_core import functions as F
from nnl_core.errors import ModelError, ShapeError
from nnl_core.graph.variable import Variable

Comparison: TypeAlias = Callable[[Variable, Variable], Variable]
Table: TypeAlias = npt.NDArray[np.float64]


class Metric:
    """The mean over all samples of what `measure` makes of a batch.

    All that a metric knows of the batches so far is its array ``state``, which checkpoints keep
    and `merge` combines. Subclasses define `measure`, what a batch's program computes, and, where
    they are more than a mean, `reset`, `add`, `merge` and `value`. A ``measure`` that takes a
    third argument, ``counts=None``, is given 1 for each sample and 0 for those that only fill a
    batch; without it, a metric cannot be used where batches are padded.

    ``higher_is_better`` holds where neither a record nor a project says otherwise.
    """

    higher_is_better: bool = True
    state: npt.NDArray[np.generic]

    def __init__(self) -> None:
        self.reset()

    def measure(self, output: Variable, target: Variable) -> Variable:
        """Return what the program of a batch computes for this metric."""
        raise ModelError(f"metric {type(self).__name__} does not define measure")

    def reset(self) -> None:
        """Forget all batches."""
        self.state = np.zeros(2)

    def add(self, measured: npt.NDArray[np.generic], count: int) -> None:
        """Take account of a batch in which ``count`` samples count; ``measured`` is not kept."""
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


class Mean(Metric):
    """The mean over all samples of what ``compare(output, target)`` gives."""

    def __init__(self, compare: Comparison) -> None:
        super().__init__()
        self._compare = compare

    def measure(
        self, output: Variable, target: Variable, counts: Variable | None = None
    ) -> Variable:
        """Return the mean of a batch."""
        compared = self._compare(output, target)
        if not isinstance(compared, Variable):
            raise ModelError(f"it compares, and returns {compared!r}; return a variable")
        return mean_of(compared, counts)


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


def mean_of(values: Variable, counts: Variable | None) -> Variable:
    """Return the mean over a batch of what is there for each sample, or for parts of it.

    ``counts`` is 1 for samples, and 0 for those that only fill the batch; of nothing, the mean
    is 0. Raises ShapeError where there are counts, but no values of samples.
    """
    if counts is None:
        return F.mean(values)
    if values.shape[:1] != counts.shape:
        raise ShapeError(
            f"a padded batch needs one value for each of its {counts.shape[0]} samples, to leave "
            f"out those that fill it, not values of shape {values.shape}; keep or drop the last "
            "batch instead"
        )
    of_samples = F.mean(F.reshape(values, (values.shape[0], -1)), axis=1)
    return F.sum(of_samples * counts) / F.maximum_scalar(F.sum(counts), 1)


def counted(values: Variable, counts: Variable) -> Variable:
    """Return the sums of ``values`` and ``counts``, which is 0 where a value does not count."""
    return F.stack(F.sum(values * counts), F.sum(counts))
