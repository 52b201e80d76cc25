"""Cumulative sums and products along an axis, and products over axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array, Operator, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.axes import (
    Axes,
    call_reduction,
    cost,
    count,
    reduced_spec,
    reduction_samples,
    spread,
)
from nnl_core.operators.dtypes import sum_dtype, wide

__all__ = ["cumprod", "cumsum", "prod"]


def _along(x: Array, axis: int, reverse: bool) -> Array:
    """Return a view with the axis first, in the direction of the scan."""
    moved = np.moveaxis(x, axis, 0)
    return moved[::-1] if reverse else moved


# What the gradients of products are made of ------------------------------------------------------


@defop("nnl::delay")
def delay(x: Array, *, axis: int, reverse: bool = False) -> Array:
    """Move elements one place along an axis, a zero coming first; ``reverse``: the other way."""
    result = np.zeros_like(x, order="C")
    _along(result, axis, reverse)[1:] = _along(x, axis, reverse)[:-1]
    return result


@delay.infer
def delay_infer(x: Spec, *, axis: int, reverse: bool) -> Spec:
    """The same as the input."""
    return x


@delay.vjp
def delay_vjp(g: Any, y: Any, x: Any, *, axis: int, reverse: bool) -> tuple[Any, ...]:
    """Move the gradient back."""
    return (delay(g, axis=axis, reverse=not reverse),)


@defop("nnl::recurrence", save=("a", "s"), outputs=("s",), precision="full")
def recurrence(a: Array, b: Array, *, axis: int, reverse: bool = False) -> Array:
    """Solve ``s[k] = b[k] + a[k] s[k-1]`` along an axis; ``reverse``: from the end."""
    result = np.zeros(b.shape, b.dtype)
    factors, terms, sums = (_along(one, axis, reverse) for one in (wide(a), b, result))
    state = np.zeros(terms.shape[1:], factors.dtype)
    for k in range(len(terms) if terms.size else 0):
        state = terms[k] + factors[k] * state
        sums[k] = state
    return result


@recurrence.infer
def recurrence_infer(a: Spec, b: Spec, *, axis: int, reverse: bool) -> Spec:
    """The same as both inputs."""
    if a.shape != b.shape:
        raise ShapeError("factors and terms differ in shape")
    return b


@recurrence.vjp
def recurrence_vjp(g: Any, s: Any, a: Any, b: Any, *, axis: int, reverse: bool) -> tuple[Any, ...]:
    """``db`` is the recurrence of ``g`` the other way round, ``da[k] = db[k] s[k-1]``."""
    back = delay(a, axis=axis, reverse=not reverse)
    gradient = recurrence(back, g, axis=axis, reverse=not reverse)
    return gradient * delay(s, axis=axis, reverse=reverse), gradient


@delay.samples
def delay_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, both directions, one element, empty."""
    yield Sample(rng.normal(size=(3, 5)), axis=0)
    yield Sample(rng.normal(size=(3, 5)), axis=1, reverse=True)
    yield Sample(rng.normal(size=(1, 2)), axis=0)
    yield Sample(np.zeros((2, 0)), axis=1)


@recurrence.samples
def recurrence_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, both directions, one element, empty."""
    for shape, axis in (((3, 5), 0), ((2, 3, 2), 1), ((1, 2), 0), ((2, 0), 1)):
        for reverse in (False, True):
            yield Sample(rng.normal(size=shape), rng.normal(size=shape), axis=axis, reverse=reverse)


# Cumulative sums and products --------------------------------------------------------------------


def _scanned(x: Array, ufunc: np.ufunc, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Accumulate along an axis; exclusive: what comes before each element."""
    dtype = sum_dtype(x.dtype)
    result = np.full(x.shape, ufunc.identity, dtype)
    source, target = _along(wide(x), axis, reverse), _along(result, axis, reverse)
    running = ufunc.accumulate(source, axis=0, dtype=wide(result).dtype)
    if exclusive:
        target[1:] = running[:-1]
    else:
        target[...] = running
    return result


def _scan_infer(x: Spec, *, axis: int, exclusive: bool, reverse: bool) -> Spec:
    normalize_axis(axis, x.ndim)
    return x.with_dtype(sum_dtype(x.dtype))


def _scan_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both ways in both, first and last axis, zeros among the factors, integers, one, empty."""
    for exclusive in (False, True):
        for reverse in (False, True):
            x = rng.uniform(0.5, 2, size=(3, 2, 3))
            axis = 0 if exclusive == reverse else 2
            yield Sample(x, axis=axis, exclusive=exclusive, reverse=reverse)
            zeros = np.array([[1.5, 0.0, -2.0, 0.5], [0.0, 3.0, 0.0, 1.0]])
            yield Sample(zeros, axis=1, exclusive=exclusive, reverse=reverse)
    yield Sample(np.full((3, 2), 100, np.int8), axis=0)
    yield Sample(rng.normal(size=(1,)), axis=0, exclusive=True)
    yield Sample(np.zeros((2, 0)), axis=1)


@defop("nnl::cumsum", precision="full")
def cumsum_operator(
    x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False
) -> Array:
    """Running sum along an axis; integers in 64 bits."""
    return _scanned(x, np.add, axis, exclusive, reverse)


@cumsum_operator.vjp
def cumsum_vjp(
    g: Any, y: Any, x: Any, *, axis: int, exclusive: bool, reverse: bool
) -> tuple[Any, ...]:
    """The running sum of the gradient from the other end."""
    return (cumsum_operator(g, axis=axis, exclusive=exclusive, reverse=not reverse),)


@defop("nnl::cumprod", save=("x",), precision="full")
def cumprod_operator(
    x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False
) -> Array:
    """Running product along an axis; integers in 64 bits."""
    return _scanned(x, np.multiply, axis, exclusive, reverse)


@cumprod_operator.vjp
def cumprod_vjp(
    g: Any, y: Any, x: Any, *, axis: int, exclusive: bool, reverse: bool
) -> tuple[Any, ...]:
    """Without a division, so that zeros do no harm.

    ``dx[k] = x[0] ... x[k-1] t[k]`` with ``t[k] = g[k] + x[k+1] t[k+1]``; where the product is
    exclusive, with ``g[k+1]`` in place of ``g[k]``.
    """
    back = {"axis": axis, "reverse": not reverse}
    before = cumprod_operator(x, axis=axis, exclusive=True, reverse=reverse)
    terms = delay(g, **back) if exclusive else g
    return (before * recurrence(delay(x, **back), terms, **back),)


for _operator in (cumsum_operator, cumprod_operator):
    _operator.infer(_scan_infer)
    _operator.samples(_scan_samples)
    _operator.multiply_adds(cost)


def cumsum(
    x: Operand, axis: int | None = None, exclusive: bool = False, reverse: bool = False
) -> Variable:
    """Sum along an axis as it goes: ``y[i] = x[0] + ... + x[i]``. Integers in 64 bits.

    Args:
        x: any shape but 0-d.
        axis: the axis to run along; 0 by default.
        exclusive: whether an element is left out of its own result.
        reverse: whether it starts at the end.

    Gradient:
        The running sum of ``dy`` from the other end.

    Examples:
        >>> F.cumsum(np.array([1.0, 2.0, 3.0])).d
        array([1., 3., 6.])

    Elsewhere:
        - nnabla: `cumsum`
        - PyTorch: `torch.cumsum`
        - ONNX: `CumSum`
    """
    return _call_scan(cumsum_operator, x, axis, exclusive, reverse)


def cumprod(
    x: Operand, axis: int | None = None, exclusive: bool = False, reverse: bool = False
) -> Variable:
    """Multiply along an axis as it goes: ``y[i] = x[0] ... x[i]``. Integers in 64 bits.

    Args:
        x: any shape but 0-d.
        axis: the axis to run along; 0 by default.
        exclusive: whether an element is left out of its own result.
        reverse: whether it starts at the end.

    Gradient:
        The sum of the products without the element, right where factors are 0.

    Examples:
        >>> F.cumprod(np.array([1.0, 2.0, 3.0])).d
        array([1., 2., 6.])

    Elsewhere:
        - nnabla: `cumprod`
        - PyTorch: `torch.cumprod`
        - ONNX: none, `Exp` of `CumSum` of `Log` where all are positive
    """
    return _call_scan(cumprod_operator, x, axis, exclusive, reverse)


def _call_scan(
    operator: Operator, x: Operand, axis: int | None, exclusive: bool, reverse: bool
) -> Variable:
    variable = x if isinstance(x, Variable) else Variable.constant(x)
    try:
        along = normalize_axis(0 if axis is None else axis, variable.ndim)
    except ShapeError as error:
        shape = variable.shape
        raise ShapeError(f"{operator.__name__}: {error}: input shape {shape}") from None
    return operator(variable, axis=along, exclusive=bool(exclusive), reverse=bool(reverse))


# Products over axes ------------------------------------------------------------------------------


@defop("nnl::prod", save=("x",), precision="full")
def prod_operator(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """Product over axes; integers in 64 bits, ``float16`` in ``float32``."""
    dtype = sum_dtype(x.dtype)
    computed = np.float32 if dtype == np.float16 else dtype
    return np.asarray(np.prod(x, axis=axes, keepdims=keepdims, dtype=computed), dtype)


@prod_operator.infer
def prod_infer(x: Spec, *, axes: tuple[int, ...], keepdims: bool) -> Spec:
    """Without the axes, or with length 1 along them."""
    return reduced_spec(x, axes, keepdims, sum_dtype(x.dtype))


@prod_operator.vjp
def prod_vjp(g: Any, y: Any, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> tuple[Any, ...]:
    """The gradient times the product of all others: of those before and those behind."""
    rest = tuple(axis for axis in range(x.ndim) if axis not in axes)
    order = (*rest, *axes)
    lengths = tuple(x.shape[axis] for axis in order)
    flat = F.transpose(x, order) if x.ndim else x
    flat = F.reshape(flat, (*lengths[: len(rest)], count(x.shape, axes)))
    others = cumprod(flat, -1, exclusive=True) * cumprod(flat, -1, exclusive=True, reverse=True)
    others = F.reshape(others, lengths)
    if x.ndim:
        others = F.transpose(others, tuple(order.index(axis) for axis in range(x.ndim)))
    return (spread(g, x, axes) * others,)


@prod_operator.samples
def prod_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Ordinary factors, one zero, two zeros, integers beyond their width."""
    yield from reduction_samples(0.5, 2)(rng)
    zeros = np.array([[1.5, 0.0, -2.0, 0.5], [0.0, 3.0, 0.0, 1.0], [1.0, 2.0, 0.5, -1.0]])
    yield Sample(zeros, axes=(1,))
    yield Sample(np.full((3, 2), 100, np.int8), axes=(0,))


prod_operator.multiply_adds(cost)


def prod(x: Operand, axis: Axes = None, keepdims: bool = False) -> Variable:
    """Multiply over axes. Integers in 64 bits.

    Args:
        x: any shape.
        axis: one axis or several; ``None`` for all.
        keepdims: whether reduced axes stay, of length 1.

    Gradient:
        The product of the others, right where factors are 0.

    Examples:
        >>> F.prod(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=1).d
        array([ 2., 12.])

    Elsewhere:
        - nnabla: `prod`
        - PyTorch: `torch.prod`
        - ONNX: `ReduceProd`
    """
    return call_reduction(prod_operator, x, axis, keepdims)
