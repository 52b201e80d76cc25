"""Numbers that tell how good a model is: losses to minimise, and metrics to report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nnl_core import functions as F
from nnl_core.errors import ModelError, ShapeError
from nnl_core.graph.variable import Variable

Comparison: TypeAlias = Callable[[Variable, Variable], Variable]


class Metric:
    """The mean over all samples of what ``compare(output, target)`` gives.

    Subclasses that are more than a mean override `measure`, what a batch's program computes, and
    how its values are put together: `reset`, `add` and `value`.
    """

    def __init__(self, compare: Comparison | None = None) -> None:
        self._compare = compare
        self.reset()

    def measure(self, output: Variable, target: Variable) -> Variable:
        """Return what the program of a batch computes for this metric."""
        if self._compare is None:
            raise ModelError(f"metric {type(self).__name__} overrides neither measure nor compares")
        return F.mean(self._compare(output, target))

    def reset(self) -> None:
        """Forget all batches."""
        self._sum = 0.0
        self._count = 0

    def add(self, measured: npt.NDArray[np.generic], count: int) -> None:
        """Take account of a batch of ``count`` samples."""
        mean = measured.item() if measured.size == 1 else measured.mean()
        self._sum += float(mean) * count
        self._count += count

    def value(self) -> float:
        """Return the metric over all batches since `reset`; NaN where there were none."""
        return self._sum / self._count if self._count else float("nan")


def class_labels(output: Variable, target: Variable) -> Variable:
    """Return labels of the shape that goes with an output's: its class axis, 1, has length 1.

    Raises ShapeError where that is impossible.
    """
    wanted = (*output.shape[:1], 1, *output.shape[2:])
    if output.ndim < 2 or target.size != _size(wanted) or target.ndim > output.ndim:
        raise ShapeError(
            f"an output of shape {output.shape} (samples, classes, ...) goes with one label for "
            f"each sample, not with a target of shape {target.shape}"
        )
    return target if target.shape == wanted else F.reshape(target, wanted)


def alike(output: Variable, target: Variable) -> Variable:
    """Return the target in the output's shape; axes of length 1 may be added or left out.

    Raises ShapeError where the two differ otherwise: broadcasting here hides mistakes.
    """
    if target.shape == output.shape:
        return target
    if [n for n in target.shape if n != 1] != [n for n in output.shape if n != 1]:
        raise ShapeError(
            f"the output has shape {output.shape}, its target {target.shape}; they must be alike"
        )
    return F.reshape(target, output.shape)


def _size(shape: Iterable[int]) -> int:
    return int(np.prod(list(shape), dtype=np.int64))


# -------------------------------------------------------------------- losses


def softmax_cross_entropy(output: Variable, target: Variable) -> Variable:
    """Compare logits along axis 1 with labels."""
    return F.softmax_cross_entropy(output, class_labels(output, target), axis=1)


def sigmoid_cross_entropy(output: Variable, target: Variable) -> Variable:
    """Compare logits with 0 and 1."""
    return F.sigmoid_cross_entropy(output, alike(output, target))


def squared_error(output: Variable, target: Variable) -> Variable:
    """Square the difference."""
    return F.squared_error(output, alike(output, target))


def absolute_error(output: Variable, target: Variable) -> Variable:
    """Return the difference without its sign."""
    return F.absolute_error(output, alike(output, target))


def huber_loss(output: Variable, target: Variable) -> Variable:
    """Square small differences; large ones (over 1) count linearly."""
    return F.huber_loss(output, alike(output, target))


LOSSES: dict[str, Comparison] = {
    function.__name__: function
    for function in (
        softmax_cross_entropy,
        sigmoid_cross_entropy,
        squared_error,
        absolute_error,
        huber_loss,
    )
}


# -------------------------------------------------------------------- metrics


def accuracy(output: Variable, target: Variable) -> Variable:
    """Return 1 where the largest value along axis 1 is the label's, else 0."""
    return 1 - F.top_n_error(output, class_labels(output, target), axis=1, n=1)


def top_5_accuracy(output: Variable, target: Variable) -> Variable:
    """Return 1 where the label's value is among the five largest along axis 1, else 0."""
    return 1 - F.top_n_error(output, class_labels(output, target), axis=1, n=5)


def binary_accuracy(output: Variable, target: Variable) -> Variable:
    """Return 1 where a logit has the sign that its target, 0 or 1, asks for, else 0."""
    is_right = F.equal(F.greater_scalar(output, 0), F.greater_scalar(alike(output, target), 0.5))
    return F.cast(is_right, np.float32)
