"""Extremes along an axis: running ones, running log-sums of exponentials, the ``k`` largest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.operator import Array, Operator, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, single_precision
from nnl_core.operators.gathering import to_variable
from nnl_core.operators.scan import delay, recurrence
from nnl_core.operators.sorting import sort_operator

__all__ = ["cummax", "cummin", "logcumsumexp", "topk"]


def _along(name: str, x: Variable, axis: int | None) -> int:
    """Return an axis (``None`` is 0) counted from the front; name the function in the error."""
    try:
        return normalize_axis(0 if axis is None else axis, x.ndim)
    except ShapeError as error:
        raise ShapeError(f"{name}: {error}: input shape {x.shape}") from None


# Running extremes --------------------------------------------------------------------------------


@defop("nnl::running_extreme", save=("index",), outputs=("y", "index"))
def running_extreme(
    x: Array, *, axis: int, smallest: bool = False, reverse: bool = False
) -> tuple[Array, Array]:
    """The largest (or smallest) of all up to each element, and where it was first met.

    NaN counts as more extreme than all numbers.
    """
    if not x.size:
        return x.copy(), np.zeros(x.shape, np.int64)
    source = np.flip(x, axis) if reverse else x
    running = (np.minimum if smallest else np.maximum).accumulate(source, axis=axis)
    before, behind = (
        running[(*[slice(None)] * axis, part)] for part in (slice(None, -1), slice(1, None))
    )
    is_new = np.zeros(x.shape, bool)
    is_new[(*[slice(None)] * axis, slice(1, None))] = (behind != before) & (before == before)
    steps = np.arange(x.shape[axis]).reshape(-1, *[1] * (x.ndim - 1 - axis))
    index = np.maximum.accumulate(np.where(is_new, steps, 0), axis=axis)
    if not reverse:
        return running, index
    last = x.shape[axis] - 1
    return np.flip(running, axis).copy(), last - np.flip(index, axis)


@running_extreme.infer
def running_extreme_infer(x: Spec, *, axis: int, smallest: bool, reverse: bool) -> tuple[Spec, ...]:
    """The input's shape, twice."""
    normalize_axis(axis, x.ndim)
    return x, x.with_dtype(np.int64)


@running_extreme.vjp
def running_extreme_vjp(
    g: Any, y: Any, x: Any, *, axis: int, smallest: bool, reverse: bool
) -> tuple[Any, ...]:
    """To the element that was the extreme."""
    return (F.scatter_add(F.zeros_like(g[0]), y[1], g[0], axis),)


@running_extreme.samples
def running_extreme_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, both ends, both directions, one element, none, integers."""
    for smallest in (False, True):
        for reverse in (False, True):
            ways = {"smallest": smallest, "reverse": reverse}
            yield Sample(rng.permutation(24).reshape(2, 3, 4) / 4, axis=1, **ways)
            yield Sample(rng.permutation(7) / 4, axis=0, **ways)
            yield Sample(np.array([[2.0, np.nan, 3.0]]), axis=1, **ways)
            yield Sample(np.array([1, 3, 3, 2]), axis=0, **ways)
    yield Sample(np.zeros((1, 2)), axis=0)
    yield Sample(np.zeros((2, 0)), axis=1)


def _running(
    name: str, x: Operand, axis: int | None, reverse: bool, with_index: bool
) -> Variable | tuple[Variable, Variable]:
    values = to_variable(x)
    y, index = running_extreme(
        values,
        axis=_along(name, values, axis),
        smallest=name == "cummin",
        reverse=bool(reverse),
    )
    return (y, index) if with_index else y


def cummax(
    x: Operand, axis: int | None = None, reverse: bool = False, with_index: bool = False
) -> Variable | tuple[Variable, Variable]:
    """Running maximum along an axis: ``y[k] = max(x[0], ..., x[k])``.

    From the first NaN on, all is NaN.

    Args:
        x: any shape but ``()``; any dtype.
        axis: where to run along; by default the first.
        reverse: start at the end.
        with_index: return also where each maximum was first met, ``int64``.

    Returns:
        The shape and dtype of ``x``.

    Raises:
        ShapeError: there is no such axis.

    Gradient:
        Added up where each maximum was first met.

    Examples:
        >>> F.cummax(np.array([1.0, 3.0, 2.0, 4.0])).d
        array([1., 3., 3., 4.])

    Elsewhere:
        - nnabla: none, the `max` of each beginning
        - PyTorch: `torch.cummax`, returns the index as well, and of equal elements the last
        - ONNX: none, `Scan` with `Max`
    """
    return _running("cummax", x, axis, reverse, with_index)


def cummin(
    x: Operand, axis: int | None = None, reverse: bool = False, with_index: bool = False
) -> Variable | tuple[Variable, Variable]:
    """Running minimum along an axis: ``y[k] = min(x[0], ..., x[k])``.

    From the first NaN on, all is NaN.

    Args:
        x: any shape but ``()``; any dtype.
        axis: where to run along; by default the first.
        reverse: start at the end.
        with_index: return also where each minimum was first met, ``int64``.

    Returns:
        The shape and dtype of ``x``.

    Raises:
        ShapeError: there is no such axis.

    Gradient:
        Added up where each minimum was first met.

    Examples:
        >>> F.cummin(np.array([3.0, 1.0, 2.0, 0.0])).d
        array([3., 1., 1., 0.])

    Elsewhere:
        - nnabla: none, the `min` of each beginning
        - PyTorch: `torch.cummin`, returns the index as well, and of equal elements the last
        - ONNX: none, `Scan` with `Min`
    """
    return _running("cummin", x, axis, reverse, with_index)


# Running log-sums --------------------------------------------------------------------------------


@defop("nnl::logcumsumexp", save=("x", "y"), precision="full")
@single_precision
def logcumsumexp_operator(
    x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False
) -> Array:
    """``log`` of the running sum of ``exp(x)``; of no elements it is ``-inf``."""
    result = np.full(x.shape, -np.inf, x.dtype)
    if not x.size:
        return result
    source, target = (np.moveaxis(one, axis, 0) for one in (x, result))
    if reverse:
        source, target = source[::-1], target[::-1]
    running = np.logaddexp.accumulate(source, axis=0)
    if exclusive:
        target[1:] = running[:-1]
    else:
        target[...] = running
    return result


@logcumsumexp_operator.infer
def logcumsumexp_infer(x: Spec, *, axis: int, exclusive: bool, reverse: bool) -> Spec:
    """The same as the input."""
    normalize_axis(axis, x.ndim)
    return x


@logcumsumexp_operator.vjp
def logcumsumexp_vjp(
    g: Any, y: Any, x: Any, *, axis: int, exclusive: bool, reverse: bool
) -> tuple[Any, ...]:
    """``dx[k] = exp(x[k] - y[k]) s[k]`` with ``s[k] = g[k] + exp(y[k] - y[k+1]) s[k+1]``.

    No exponent is positive, as ``y`` rises. Where the sum is exclusive, ``y`` is the one that is
    not, and ``g[k+1]`` stands in place of ``g[k]``.
    """
    if not x.shape[axis]:
        return (g,)
    back = {"axis": axis, "reverse": not reverse}
    sums = logcumsumexp_operator(x, axis=axis, reverse=reverse) if exclusive else y

    def place(part: slice) -> tuple[slice, ...]:
        return (*[slice(None)] * axis, part)

    first, second = (slice(None, -1), slice(1, None))[:: -1 if reverse else 1]
    before, behind = F.getitem(sums, place(first)), F.getitem(sums, place(second))
    widths = [0] * (2 * x.ndim)
    widths[2 * axis + (0 if reverse else 1)] = 1  # nothing comes behind the last
    # Of infinite elements, each sum counts those so far.
    number = F.cumsum(F.cast(x == np.inf, x.dtype), axis, reverse=reverse)
    shares = 1 / F.maximum_scalar(number, 1)
    of_before = F.getitem(number, place(first)) * F.getitem(shares, place(second))
    factors = F.pad(_ratio(before, behind, of_before), widths)
    terms = delay(g, **back) if exclusive else g
    return (_ratio(x, sums, shares) * recurrence(factors, terms, **back),)


def _ratio(small: Variable, large: Variable, share: Variable) -> Variable:
    """``exp(small - large)``; 0 where ``small`` is ``-inf``, ``share`` where both are ``inf``."""
    nothing, all_of_it = small == -np.inf, large == np.inf
    known = F.logical_or(nothing, all_of_it)
    difference = F.where(known, 0.0, small) - F.where(known, 0.0, large)
    result: Variable = F.where(known, F.where(small == np.inf, share, 0.0), F.exp(difference))
    return result


@logcumsumexp_operator.samples
def logcumsumexp_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every combination, each axis, large numbers, one element, none."""
    for exclusive in (False, True):
        for reverse in (False, True):
            ways = {"exclusive": exclusive, "reverse": reverse}
            yield Sample(rng.normal(size=(2, 3, 4)), axis=1, **ways)
            yield Sample(rng.normal(size=(5,)), axis=0, **ways)
            yield Sample(np.array([-1000.0, 3.0, 1000.0, -30.0]), axis=0, **ways)
    yield Sample(np.array([-np.inf, -np.inf, 1.0, -np.inf]), axis=0)
    yield Sample(rng.normal(size=(1, 2)), axis=0, exclusive=True)
    yield Sample(np.zeros((2, 0)), axis=1)


def logcumsumexp(
    x: Operand, axis: int | None = None, exclusive: bool = False, reverse: bool = False
) -> Variable:
    """Running ``y[k] = log(exp(x[0]) + ... + exp(x[k]))`` along an axis, without overflow.

    ``float16`` is computed in ``float32``.

    Args:
        x: any shape but ``()``; integers become ``float32``.
        axis: where to run along; by default the first.
        exclusive: leave each element out of its own sum; the first is then ``-inf``.
        reverse: start at the end.

    Returns:
        The shape of ``x``.

    Raises:
        ShapeError: there is no such axis.

    Gradient:
        ``dx[k]`` is the sum over ``j >= k`` of ``g[j] exp(x[k] - y[j])``: 0 where ``x`` is
        ``-inf``; elements that are ``inf`` share the gradient of each sum equally.

    Examples:
        >>> np.exp(F.logcumsumexp(np.log(np.array([1.0, 2.0, 3.0]))).d).round(6)
        array([1., 3., 6.])

    Elsewhere:
        - nnabla: none, `log` of `cumsum` of `exp`, which overflows
        - PyTorch: `torch.logcumsumexp`
        - ONNX: none, `Log` of `CumSum` of `Exp`, which overflows
    """
    values = floating(x)
    along = _along("logcumsumexp", values, axis)
    return logcumsumexp_operator(
        values, axis=along, exclusive=bool(exclusive), reverse=bool(reverse)
    )


def _cost(x: Spec, **attributes: Any) -> int:
    return x.size


_scans: tuple[Operator, ...] = (running_extreme, logcumsumexp_operator)
for _operator in _scans:
    _operator.multiply_adds(_cost)


# The largest -------------------------------------------------------------------------------------


@defop("nnl::topk", save=("index",), outputs=("y", "index"))
def topk_operator(x: Array, *, k: int, axis: int, largest: bool = True) -> tuple[Array, Array]:
    """The ``k`` largest (or smallest) elements along an axis by rank, and where they are."""
    _, order = sort_operator.reference(x, axis=axis, reverse=largest)
    index = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, index, axis), index


@topk_operator.infer
def topk_infer(x: Spec, *, k: int, axis: int, largest: bool) -> tuple[Spec, Spec]:
    """``k`` in place of the length of the axis, twice."""
    along = normalize_axis(axis, x.ndim)
    if not 0 <= k <= x.shape[along]:
        raise ShapeError(
            f"k {k} must be between 0 and the {x.shape[along]} elements along axis {along}"
        )
    y = x.with_shape((*x.shape[:along], k, *x.shape[along + 1 :]))
    return y, y.with_dtype(np.int64)


@topk_operator.vjp
def topk_vjp(g: Any, y: Any, x: Any, *, k: int, axis: int, largest: bool) -> tuple[Any, ...]:
    """Put the gradients back where the elements were."""
    zeros = F.broadcast(Variable.constant(np.zeros((), x.dtype)), x.shape)
    return (F.scatter_add(zeros, y[1], g[0], axis),)


@topk_operator.samples
def topk_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both ends, each axis, long and short, ties, NaN, infinities, integers, all, none."""
    for largest in (False, True):
        yield Sample(rng.permutation(200).reshape(2, 100) / 4, k=5, axis=1, largest=largest)
        yield Sample(rng.integers(0, 9, size=(90, 2)), k=20, axis=0, largest=largest)
        yield Sample(rng.permutation(60).reshape(3, 20) / 4, k=3, axis=-1, largest=largest)
        yield Sample(rng.permutation(24).reshape(2, 3, 4) / 4, k=2, axis=1, largest=largest)
        yield Sample(rng.permutation(7) / 4, k=7, axis=0, largest=largest)
        yield Sample(rng.integers(0, 3, size=(4, 9)), k=5, axis=1, largest=largest)
        special = np.array([2.0, np.nan, -np.inf, np.inf, 3.0, np.nan, -np.inf, 1.0])
        for k in (1, 4, 6, 7):
            yield Sample(special, k=k, axis=0, largest=largest)
    yield Sample(rng.normal(size=(2, 3)), k=0, axis=1)
    yield Sample(np.zeros((0, 3)), k=2, axis=1)


topk_operator.multiply_adds(_cost)


def topk(
    x: Operand, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Variable, Variable]:
    """Return the ``k`` largest elements along an axis, and where they are.

    Of equal elements the first comes first. NaN counts as larger than all numbers.

    Args:
        x: any shape but ``()``; any dtype.
        k: how many, from 0 to the length of the axis.
        axis: where to look along.
        largest: the largest, from there downwards; else the smallest, from there upwards.
        sorted: a hint: they come sorted in any case.

    Returns:
        Elements, of the dtype of ``x``, and positions, ``int64``: ``k`` long along the axis.

    Raises:
        ShapeError: there is no such axis, or it has fewer elements.

    Gradient:
        Goes back to where the elements were.

    Examples:
        >>> values, places = F.topk(np.array([3.0, 1.0, 4.0, 2.0]), 2)
        >>> values.d, places.d
        (array([4., 3.]), array([2, 0]))

    Elsewhere:
        - nnabla: `top_k_data`, which ranks all elements of a sample together
        - PyTorch: `torch.topk`, leaves open which of equal elements comes first
        - ONNX: `TopK`
    """
    values = to_variable(x)
    return topk_operator(
        values, k=whole(k, "k"), axis=_along("topk", values, axis), largest=bool(largest)
    )
