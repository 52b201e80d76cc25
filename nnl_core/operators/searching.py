"""Search in sorted sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable

__all__ = ["searchsorted"]


@defop("nnl::searchsorted")
def searchsorted_operator(sorted_sequence: Array, values: Array, *, right: bool = False) -> Array:
    """Place of each value in the sorted last axis: after (``right``) or before equal elements."""
    result = np.empty(values.shape, np.int64)
    for row in np.ndindex(values.shape[:-1]):
        sequence, wanted = sorted_sequence[row], values[row]
        result[row] = np.searchsorted(sequence, wanted, side="right" if right else "left")
    return result


@searchsorted_operator.infer
def searchsorted_infer(sorted_sequence: Spec, values: Spec, *, right: bool) -> Spec:
    """The values' shape, as ``int64``."""
    if not values.ndim or sorted_sequence.shape[:-1] != values.shape[:-1]:
        raise ShapeError("the sequences and the values must agree in all axes but the last")
    return values.with_dtype(np.int64)


@searchsorted_operator.vjp
def searchsorted_vjp(g: Any, y: Any, *inputs: Any, right: bool) -> tuple[Any, ...]:
    """A place has no slope."""
    return None, None


@searchsorted_operator.samples
def searchsorted_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One sequence, several, equal elements, integers, nothing to look for or in."""
    yield Sample(np.array([-1.0, 0.5, 0.5, 2.0]), np.array([0.5, -2.0, 3.0, 1.0]))
    yield Sample(np.sort(rng.normal(size=(2, 3, 5))), rng.normal(size=(2, 3, 4)), right=True)
    yield Sample(np.array([[1, 1, 3], [2, 4, 6]]), np.array([[1, 2], [4, 9]]), right=True)
    yield Sample(np.zeros((2, 0)), rng.normal(size=(2, 3)))
    yield Sample(np.zeros((2, 3)), np.zeros((2, 0)))


def searchsorted(sorted_sequence: Operand, values: Operand, right: bool | None = None) -> Variable:
    """Find where values belong in sequences sorted along the last axis, as ``int64``.

    Args:
        sorted_sequence: (..., length), in ascending order.
        values: (..., number); the same leading axes.
        right: whether the place after equal elements is given, or that before.

    Raises:
        ShapeError: the leading axes differ.

    Gradient:
        None: places have no slope.

    Examples:
        >>> F.searchsorted(np.array([1.0, 3.0, 3.0, 5.0]), np.array([3.0, 9.0])).d
        array([1, 4])

    Elsewhere:
        - nnabla: `searchsorted`
        - PyTorch: `torch.searchsorted`
        - ONNX: none, `ReduceSum` of `Less`
    """
    return searchsorted_operator(sorted_sequence, values, right=bool(right))
