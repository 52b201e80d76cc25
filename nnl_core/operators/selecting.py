"""What an array holds: its distinct elements, and where it is not zero. The data decides shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.gathering import to_variable

__all__ = ["nonzero", "unique"]

INTEGER = np.dtype(np.int64)


def _check_count(what: str, found: int, count: int) -> None:
    if found != count:
        raise OperatorError(
            f"{what}, where {count} were expected; build the graph again for data with another "
            "number of them"
        )


# Distinct elements -------------------------------------------------------------------------------


def _distinct(x: Array, axis: int | None, sorted: bool) -> tuple[Array, ...]:
    """Return distinct slices, where each is first, which one each slice is, and how many are."""
    values, index, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)  # the shape that it has differs from NumPy to NumPy
    if not sorted:
        order = np.argsort(index)
        values = np.take(values, order, axis=0 if axis is None else axis)
        index, counts = index[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, *(each.astype(INTEGER, copy=False) for each in (index, inverse, counts))


@defop("nnl::unique", save=("index",), outputs=("y", "index", "inverse", "counts"))
def unique_operator(x: Array, *, axis: int | None, sorted: bool, count: int) -> tuple[Array, ...]:
    """Return the distinct slices along an axis, of which there must be ``count``.

    Without an axis, distinct elements. Also: where each is first, which one each slice is, and
    how often each occurs.
    """
    found = _distinct(x, axis, sorted)
    _check_count(f"unique: {found[1].size} elements or slices differ", found[1].size, count)
    return found


@unique_operator.infer
def unique_infer(x: Spec, *, axis: int | None, sorted: bool, count: int) -> tuple[Spec, ...]:
    """``count`` in place of the axis, or of all."""
    shape = (count,) if axis is None else (*x.shape[:axis], count, *x.shape[axis + 1 :])
    length = x.size if axis is None else x.shape[axis]
    counted = Spec((count,), INTEGER)
    return x.with_shape(shape), counted, Spec((length,), INTEGER), counted


@unique_operator.vjp
def unique_vjp(
    g: Any, y: Any, x: Any, *, axis: int | None, sorted: bool, count: int
) -> tuple[Any, ...]:
    """To the first of equal slices."""
    gradient, index = g[0], y[1]
    if gradient is None:
        return (None,)
    if axis is not None:
        size = x.shape[axis]
        return (F.gather_adjoint(gradient, index, size=size, axis=axis, batch_dims=0),)
    flat = F.gather_adjoint(gradient, index, size=x.size, axis=0, batch_dims=0)
    return (F.reshape(flat, x.shape),)


@unique_operator.samples
def unique_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Elements and slices, in both orders, equal ones where they are integers, 0-d, empty."""
    for ordered in (True, False):
        x = rng.permutation(12).reshape(3, 4) / 4
        yield Sample(x, axis=None, sorted=ordered, count=12)
        yield Sample(x, axis=1, sorted=ordered, count=4)
        yield Sample(np.array([3, 1, 3, 2, 1]), axis=None, sorted=ordered, count=3)
        yield Sample(np.array([[2, 1, 2], [0, 5, 0]]), axis=1, sorted=ordered, count=2)
        yield Sample(np.array(2.0), axis=None, sorted=ordered, count=1)
        yield Sample(np.zeros((0, 3)), axis=None, sorted=ordered, count=0)


def unique(
    x: Operand,
    flatten: bool = True,
    axis: int | None = None,
    sorted: bool = True,
    with_index: bool = False,
    with_inverse: bool = False,
    with_counts: bool = False,
) -> Variable | tuple[Variable, ...]:
    """Return the distinct elements of ``x``, or its distinct slices along ``axis``.

    How many there are is read from the data now, as shapes are known before anything runs; an
    `OperatorError` says so if a later run finds another number. All NaN are one element; slices
    that hold NaN all differ.

    Args:
        x: any shape and dtype.
        flatten: whether elements are compared; else slices along ``axis``.
        axis: where slices are taken, with ``flatten=False``; not looked at otherwise.
        sorted: whether the result is in rising order, slices by their first elements first; else
            in that of their first occurrence.
        with_index: whether to return where each is first.
        with_inverse: whether to return which of them each element of the flat ``x``, or each
            slice, is.
        with_counts: whether to return how often each occurs.

    Returns:
        The elements, or ``x`` with fewer slices; if something else is asked for, a tuple of
        this and of one ``int64`` array for each, in the order of the arguments.

    Raises:
        ShapeError: the axis is missing or out of range.

    Gradient:
        To the first of equal elements or slices; no gradient of the whole numbers.

    Examples:
        >>> y, counts = F.unique(np.array([3, 1, 3]), with_counts=True)
        >>> y.d, counts.d
        (array([1, 3]), array([1, 2]))

    Elsewhere:
        - nnabla: `unique`, in dynamic graphs, without a gradient; ``axis`` must always be given
        - PyTorch: `torch.unique`, always sorted, without the index
        - ONNX: `Unique`, with all four outputs
    """
    x = to_variable(x)
    along = None
    if not flatten:
        if axis is None:
            raise ShapeError("unique: flatten=False needs an axis that slices are taken along")
        along = normalize_axis(axis, x.ndim)
    count = int(_distinct(x.d, along, bool(sorted))[1].size)
    y, *others = unique_operator(x, axis=along, sorted=bool(sorted), count=count)
    asked = [
        output
        for output, wanted in zip(others, (with_index, with_inverse, with_counts), strict=True)
        if wanted
    ]
    return (y, *asked) if asked else y


# Not zero ----------------------------------------------------------------------------------------


@defop("nnl::nonzero", outputs=("positions",))
def nonzero_operator(x: Array, *, count: int) -> Array:
    """Return where an array is not zero, (axes, count); there must be ``count`` such places."""
    positions = np.argwhere(x).T
    _check_count(f"nonzero: {positions.shape[1]} elements are not 0", positions.shape[1], count)
    return np.array(positions, INTEGER, order="C")


@nonzero_operator.infer
def nonzero_infer(x: Spec, *, count: int) -> Spec:
    """(axes, count)."""
    return Spec((x.ndim, count), INTEGER)


@nonzero_operator.vjp
def nonzero_vjp(g: Any, y: Any, x: Any, *, count: int) -> tuple[Any, ...]:
    """Positions have no slope."""
    return (None,)


@nonzero_operator.samples
def nonzero_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One axis and several, truths, NaN, none, 0-d, empty."""
    yield Sample(np.array([0.0, 2.0, np.nan, 0.0, -1.0]), count=3)
    yield Sample(np.array([[0, 3, 0], [1, 0, 4]]), count=3)
    yield Sample(np.array([[[True], [False]]]), count=1)
    yield Sample(np.zeros((2, 2)), count=0)
    yield Sample(np.array(3.0), count=1)
    yield Sample(np.zeros((0, 2)), count=0)


def nonzero(x: Operand) -> Variable:
    """Return the positions of all elements that are not 0, in row-major order.

    How many there are is read from the data now, as shapes are known before anything runs; an
    `OperatorError` says so if a later run finds another number. NaN is not 0.

    Args:
        x: any shape and dtype.

    Returns:
        ``(axes, found)``, ``int64``: row ``k`` holds positions along axis ``k``.

    Gradient:
        None: positions have no slope.

    Examples:
        >>> F.nonzero(np.array([[0, 5], [6, 0]])).d
        array([[0, 1],
               [1, 0]])

    Elsewhere:
        - nnabla: `nonzero`
        - PyTorch: `torch.nonzero`, transposed
        - ONNX: `NonZero`
    """
    x = to_variable(x)
    return nonzero_operator(x, count=int(np.count_nonzero(x.d)))
