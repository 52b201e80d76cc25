"""Reductions over axes: sums, means, extremes and where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.operator import Array, Operator, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.axes import (
    Axes,
    call_reduction,
    call_statistic,
    cost,
    count,
    kept_shape,
    reduced_spec,
    reduction_samples,
    spread,
)
from nnl_core.operators.dtypes import sum_dtype, wide

__all__ = [
    "add_n",
    "argmax",
    "argmin",
    "max",
    "mean",
    "min",
    "mul_n",
    "reduce",
    "reduce_mean",
    "reduce_sum",
    "sum",
]

# Sums and means ----------------------------------------------------------------------------------


@defop("nnl::sum", precision="full")
def sum_operator(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """Sum over axes; integers and booleans in 64 bits, ``float16`` in ``float32``."""
    dtype = sum_dtype(x.dtype)
    computed = np.float32 if dtype == np.float16 else dtype
    return np.asarray(x.sum(axis=axes, keepdims=keepdims, dtype=computed), dtype)


@sum_operator.infer
def sum_infer(x: Spec, *, axes: tuple[int, ...], keepdims: bool) -> Spec:
    """Without the axes, or with length 1 along them."""
    return reduced_spec(x, axes, keepdims, sum_dtype(x.dtype))


@sum_operator.vjp
def sum_vjp(g: Any, y: Any, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> tuple[Any, ...]:
    """Repeat the gradient."""
    return (spread(g, x, axes),)


@sum_operator.samples
def sum_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Floating, and integers whose sum does not fit their width."""
    yield from reduction_samples(-2, 2)(rng)
    yield Sample(np.full((3, 4), 100, np.int8), axes=(1,))
    yield Sample(np.ones((2, 3), bool), axes=(0, 1))
    yield Sample(np.full(3, 200, np.uint8), axes=(0,))


sum_operator.multiply_adds(cost)


def sum(x: Operand, axis: Axes = None, keepdims: bool = False) -> Variable:
    """Sum over axes. Integers and truths are summed in 64 bits; ``float16`` in ``float32``.

    Args:
        x: any shape and dtype.
        axis: one axis or several; ``None`` for all.
        keepdims: whether reduced axes stay, of length 1.

    Gradient:
        ``dx = dy``, repeated along the reduced axes.

    Examples:
        >>> F.sum(np.array([[1.0, 3.0], [5.0, 6.0]]), axis=1).d
        array([ 4., 11.])

    Elsewhere:
        - nnabla: `sum`
        - PyTorch: `torch.sum`
        - ONNX: `ReduceSum`
    """
    return call_reduction(sum_operator, x, axis, keepdims)


def _define(
    name: str, save: tuple[str, ...], samples: Any, function: Callable[..., Any]
) -> Operator:
    """Define a reduction of floating elements; ``function`` gets ``float16`` as ``float32``."""

    def reference(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
        return np.asarray(function(wide(x), axes, keepdims), x.dtype)

    reference.__module__ = __name__
    reference.__doc__ = function.__doc__
    operator = defop(f"nnl::{name}", save=save, precision="full")(reference)
    operator.infer(reduced_spec)
    operator.samples(samples)
    operator.multiply_adds(cost)
    return operator


def _mean(x: Array, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Mean over axes; that of nothing is NaN."""
    number = count(x.shape, axes)
    return x.sum(axis=axes, keepdims=keepdims) / (number or np.nan)


mean_operator = _define("mean", (), reduction_samples(-2, 2), _mean)


@mean_operator.vjp
def mean_vjp(g: Any, y: Any, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> tuple[Any, ...]:
    """Repeat the gradient, divided by the number of elements."""
    return (spread(g * (1.0 / (count(x.shape, axes) or 1)), x, axes),)


def mean(x: Operand, axis: Axes = None, keepdims: bool = False) -> Variable:
    """Average over axes; the mean of nothing is NaN.

    Args:
        x: any shape; of integers the mean is ``float32``, computed in ``float64``.
        axis: one axis or several; ``None`` for all.
        keepdims: whether reduced axes stay, of length 1.

    Gradient:
        ``dx = dy / n``, with ``n`` elements in each mean.

    Examples:
        >>> F.mean(np.array([[1.0, 3.0], [5.0, 6.0]]), axis=1).d
        array([2. , 5.5])

    Elsewhere:
        - nnabla: `mean`
        - PyTorch: `torch.mean`
        - ONNX: `ReduceMean`
    """
    return call_statistic(mean_operator, x, axis, keepdims)


def reduce_sum(x: Operand) -> Variable:
    """Sum all elements.

    Args:
        x: any shape.

    Gradient:
        ``dx = dy``.

    Examples:
        >>> F.reduce_sum(np.array([1.0, 2.0, 6.0])).d
        array(9.)

    Elsewhere:
        - nnabla: `reduce_sum`
        - PyTorch: `torch.sum`
        - ONNX: `ReduceSum`
    """
    return sum(x)


def reduce_mean(x: Operand) -> Variable:
    """Average all elements.

    Args:
        x: any shape.

    Gradient:
        ``dx = dy / n``, with ``n`` elements.

    Examples:
        >>> F.reduce_mean(np.array([1.0, 2.0, 6.0])).d
        array(3.)

    Elsewhere:
        - nnabla: `reduce_mean`
        - PyTorch: `torch.mean`
        - ONNX: `ReduceMean`
    """
    return mean(x)


def reduce(x: Operand, op: str = "sum") -> Variable:
    """Reduce all elements to one number.

    Args:
        x: any shape.
        op: ``"sum"`` or ``"mean"``.

    Gradient:
        As of `sum` and `mean`.

    Examples:
        >>> F.reduce(np.array([1.0, 2.0, 6.0]), op="mean").d
        array(3.)

    Elsewhere:
        - nnabla: `reduce`
        - PyTorch: `torch.sum` or `torch.mean`
        - ONNX: `ReduceSum` or `ReduceMean`
    """
    if op == "sum":
        return sum(x)
    if op == "mean":
        return mean(x)
    raise OperatorError(f"reduce: op is {op!r}; choose 'sum' or 'mean'")


def add_n(*x: Operand, inplace: bool = False) -> Variable:
    """Sum one or more arrays, broadcasting: ``y = x_0 + x_1 + ...``.

    Args:
        *x: the arrays.
        inplace: a hint that changes nothing.

    Gradient:
        ``dy`` for each array, summed back to its shape.

    Examples:
        >>> F.add_n(np.array([1.0, 2.0]), np.array([10.0, 20.0]), np.array([0.5])).d
        array([11.5, 22.5])

    Elsewhere:
        - nnabla: `add_n`
        - PyTorch: none, `sum([x0, x1, ...])`
        - ONNX: `Sum`
    """
    if not x:
        raise OperatorError("add_n needs at least one input")
    total = F.identity(x[0]) if len(x) == 1 else x[0]
    for other in x[1:]:
        total = F.add(total, other)
    return total


def mul_n(*x: Operand, inplace: bool = False) -> Variable:
    """Multiply one or more arrays, broadcasting: ``y = x_0 x_1 ...``.

    Args:
        *x: the arrays.
        inplace: a hint that changes nothing.

    Gradient:
        The product of the other arrays, also where one of them is 0.

    Examples:
        >>> F.mul_n(np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([10.0])).d
        array([30., 80.])

    Elsewhere:
        - nnabla: `mul_n`
        - PyTorch: none, `math.prod([x0, x1, ...])`
        - ONNX: none, `Mul` of pairs
    """
    if not x:
        raise OperatorError("mul_n needs at least one input")
    product = F.identity(x[0]) if len(x) == 1 else x[0]
    for other in x[1:]:
        product = F.mul(product, other)
    return product


# Extremes ----------------------------------------------------------------------------------------


def _flattened(x: Array, axes: tuple[int, ...]) -> Array:
    """Return ``x`` with the axes joined to one at the end."""
    moved = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
    rest = moved.shape[: x.ndim - len(axes)]
    return moved.reshape(*rest, count(x.shape, axes))


def _not_empty(x: Spec, axes: tuple[int, ...], keepdims: bool, dtype: Any = None) -> Spec:
    if not count(x.shape, axes):
        raise ShapeError(f"there is no extreme of no elements (axes {axes})")
    return reduced_spec(x, axes, keepdims, dtype)


def _define_extreme(
    name: str, text: str, extreme: Callable[..., Any], place: Callable[..., Any]
) -> tuple[Operator, Operator]:
    """Define a maximum or minimum, and where it is."""

    def value(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Any:
        return extreme(x, axis=axes, keepdims=keepdims)

    def position(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Any:
        found = np.asarray(place(_flattened(x, axes), axis=-1), np.int64)
        return found.reshape(kept_shape(x.shape, axes)) if keepdims else found

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        yield from reduction_samples(-2, 2, empty=False)(rng)
        yield Sample(rng.permutation(24).reshape(2, 3, 4), axes=(0, 2), keepdims=False)

    value.__module__ = position.__module__ = __name__
    value.__doc__ = f"{text} over axes; NaN where there is one."
    position.__doc__ = f"Position of the first {text.lower()} over axes, or of the first NaN."
    extremes = defop(f"nnl::{name}", save=("x",))(value)
    extremes.infer(_not_empty)
    positions = defop(f"nnl::arg{name}")(position)
    positions.infer(lambda x, *, axes, keepdims: _not_empty(x, axes, keepdims, np.int64))
    positions.vjp(lambda g, y, x, **attributes: (None,))
    extremes.vjp(
        lambda g, y, x, *, axes, keepdims: (
            place_reduced(g, positions(x, axes=axes, keepdims=keepdims), shape=x.shape, axes=axes),
        )
    )
    for operator in (extremes, positions):
        operator.samples(samples)
        operator.multiply_adds(cost)
    return extremes, positions


@defop("nnl::place_reduced", save=("index",))
def place_reduced(
    g: Array, index: Array, *, shape: tuple[int, ...], axes: tuple[int, ...]
) -> Array:
    """Put each element where ``index`` says among the reduced axes, zeros elsewhere."""
    rest = tuple(n for axis, n in enumerate(shape) if axis not in axes)
    flat = np.zeros((*rest, count(shape, axes)), g.dtype)
    np.put_along_axis(flat, index.reshape(*rest, 1), g.reshape(*rest, 1), axis=-1)
    moved = flat.reshape((*rest, *(shape[axis] for axis in axes)))
    return np.moveaxis(moved, range(len(rest), len(shape)), axes).copy()


@place_reduced.infer
def place_reduced_infer(
    g: Spec, index: Spec, *, shape: tuple[int, ...], axes: tuple[int, ...]
) -> Spec:
    """The given shape."""
    if g.shape != index.shape:
        raise ShapeError("elements and their places differ in shape")
    return g.with_shape(shape)


@place_reduced.vjp
def place_reduced_vjp(
    h: Any, y: Any, g: Any, index: Any, *, shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[Any, ...]:
    """Take the gradient from the same places."""
    return pick_reduced(h, index, axes=axes), None


@defop("nnl::pick_reduced", save=("index",))
def pick_reduced(x: Array, index: Array, *, axes: tuple[int, ...]) -> Array:
    """Take from each reduced part the element where ``index`` says."""
    flat = _flattened(x, axes)
    taken = np.take_along_axis(flat, index.reshape(*flat.shape[:-1], 1), axis=-1)
    return taken.reshape(index.shape)


@pick_reduced.infer
def pick_reduced_infer(x: Spec, index: Spec, *, axes: tuple[int, ...]) -> Spec:
    """The shape of the index."""
    return x.with_shape(index.shape)


@pick_reduced.vjp
def pick_reduced_vjp(
    g: Any, y: Any, x: Any, index: Any, *, axes: tuple[int, ...]
) -> tuple[Any, ...]:
    """Put the gradient to the same places."""
    return place_reduced(g, index, shape=x.shape, axes=axes), None


@place_reduced.samples
def place_reduced_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One axis, several, kept axes, 0-d, empty."""
    yield Sample(rng.normal(size=3), rng.integers(0, 5, size=3), shape=(3, 5), axes=(1,))
    yield Sample(
        rng.normal(size=(1, 3, 1)), rng.integers(0, 8, (1, 3, 1)), shape=(2, 3, 4), axes=(0, 2)
    )
    yield Sample(rng.normal(size=()), np.array(0), shape=(), axes=())
    yield Sample(np.zeros(0), np.zeros(0, np.int64), shape=(0, 3), axes=(1,))


@pick_reduced.samples
def pick_reduced_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One axis, several, kept axes, 0-d, empty."""
    yield Sample(rng.normal(size=(3, 5)), rng.integers(0, 5, size=3), axes=(1,))
    yield Sample(rng.normal(size=(2, 3, 4)), rng.integers(0, 8, (1, 3, 1)), axes=(0, 2))
    yield Sample(rng.normal(size=()), np.array(0), axes=())
    yield Sample(np.zeros((0, 3)), np.zeros(0, np.int64), axes=(1,))


max_operator, argmax_operator = _define_extreme("max", "Maximum", np.max, np.argmax)
min_operator, argmin_operator = _define_extreme("min", "Minimum", np.min, np.argmin)


def max(
    x: Operand,
    axis: Axes = None,
    keepdims: bool = False,
    with_index: bool = False,
    only_index: bool = False,
) -> Any:
    """Take the maximum over axes; NaN where there is one.

    Args:
        x: any shape; not empty along ``axis``.
        axis: one axis or several; ``None`` for all.
        keepdims: whether reduced axes stay, of length 1.
        with_index: return the pair of maximum and position.
        only_index: return the position alone: an ``int64`` that counts through the reduced axes,
            the last fastest.

    Gradient:
        Goes to the first of equal maxima, whole.

    Examples:
        >>> F.max(np.array([[1.0, 3.0], [5.0, 4.0]]), axis=1).d
        array([3., 5.])

    Elsewhere:
        - nnabla: `max`
        - PyTorch: `torch.amax`, which divides the gradient among equal ones
        - ONNX: `ReduceMax`
    """
    return _extreme(max_operator, argmax_operator, x, axis, keepdims, with_index, only_index)


def min(
    x: Operand,
    axis: Axes = None,
    keepdims: bool = False,
    with_index: bool = False,
    only_index: bool = False,
) -> Any:
    """Take the minimum over axes; NaN where there is one.

    Args:
        x: any shape; not empty along ``axis``.
        axis: one axis or several; ``None`` for all.
        keepdims: whether reduced axes stay, of length 1.
        with_index: return the pair of minimum and position.
        only_index: return the position alone: an ``int64`` that counts through the reduced axes,
            the last fastest.

    Gradient:
        Goes to the first of equal minima, whole.

    Examples:
        >>> F.min(np.array([[1.0, 3.0], [5.0, 4.0]]), axis=1).d
        array([1., 4.])

    Elsewhere:
        - nnabla: `min`
        - PyTorch: `torch.amin`, which divides the gradient among equal ones
        - ONNX: `ReduceMin`
    """
    return _extreme(min_operator, argmin_operator, x, axis, keepdims, with_index, only_index)


def _extreme(
    values: Operator,
    positions: Operator,
    x: Operand,
    axis: Axes,
    keepdims: bool,
    with_index: bool,
    only_index: bool,
) -> Any:
    if only_index:
        return call_reduction(positions, x, axis, keepdims)
    value = call_reduction(values, x, axis, keepdims)
    return (value, call_reduction(positions, x, axis, keepdims)) if with_index else value


def argmax(x: Operand, axis: Axes = None, keepdims: bool = False) -> Variable:
    """Find the position of the first maximum, or of the first NaN, as ``int64``.

    Args:
        x: any shape and dtype; not empty along ``axis``.
        axis: one axis or several, through which the position counts with the last fastest; ``None``
            for all.
        keepdims: whether reduced axes stay, of length 1.

    Gradient:
        None: positions have no slope.

    Examples:
        >>> F.argmax(np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 5.0]]), axis=1).d
        array([1, 0])

    Elsewhere:
        - nnabla: none, `F.max(x, axis, only_index=True)`
        - PyTorch: `torch.argmax`
        - ONNX: `ArgMax`
    """
    return call_reduction(argmax_operator, x, axis, keepdims)


def argmin(x: Operand, axis: Axes = None, keepdims: bool = False) -> Variable:
    """Find the position of the first minimum, or of the first NaN, as ``int64``.

    Args:
        x: any shape and dtype; not empty along ``axis``.
        axis: one axis or several, through which the position counts with the last fastest; ``None``
            for all.
        keepdims: whether reduced axes stay, of length 1.

    Gradient:
        None: positions have no slope.

    Examples:
        >>> F.argmin(np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 4.0]]), axis=1).d
        array([0, 1])

    Elsewhere:
        - nnabla: none, `F.min(x, axis, only_index=True)`
        - PyTorch: `torch.argmin`
        - ONNX: `ArgMin`
    """
    return call_reduction(argmin_operator, x, axis, keepdims)
