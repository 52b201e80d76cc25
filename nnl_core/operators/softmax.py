"""Softmax and its logarithm along an axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.graph.checks import whole
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, single_precision

__all__ = ["log_softmax", "masked_softmax", "softmax"]


def _same(x: Spec, *others: Spec, axis: int) -> Spec:
    """The input's spec, if it has that axis."""
    normalize_axis(axis, x.ndim)
    return x


def _samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, one class, large values, an empty batch, no classes."""
    for axis in (0, 1, -1):
        yield Sample(2 * rng.normal(size=(3, 4, 5)), axis=axis)
    yield Sample(rng.normal(size=(2, 1)), axis=1)
    yield Sample(rng.normal(size=(7, 70)), axis=-1)
    yield Sample(np.array([[1000.0, 1000.0, -1000.0], [-1000.0, -999.0, -1000.0]]), axis=1)
    yield Sample(np.zeros((0, 3)), axis=1)
    yield Sample(np.zeros((2, 0)), axis=-1)


def _gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Two arrays, of which the second is a result."""
    for shape, axis in (((3, 4), 1), ((2, 3, 4), 0), ((2, 3, 4), -2), ((0, 3), 1), ((5, 70), 1)):
        y = rng.uniform(0.1, 1, size=shape)
        yield Sample(rng.normal(size=shape), y, axis=axis)


def shifted(x: Array, axis: int) -> Array:
    """Subtract the largest element along the axis, so that no exponential overflows."""
    return np.asarray(x - x.max(axis, keepdims=True, initial=-np.inf))


@defop("nnl::softmax", save=("y",), precision="full")
@single_precision
def softmax_operator(x: Array, *, axis: int = -1) -> Array:
    """``exp(x) / sum(exp(x))`` along an axis."""
    e = np.exp(shifted(x, axis))
    return np.asarray(e / e.sum(axis, keepdims=True))


softmax_operator.infer(_same)
softmax_operator.samples(_samples)


@softmax_operator.vjp
def softmax_vjp(g: Any, y: Any, x: Any, *, axis: int) -> tuple[Any, ...]:
    """``y (g - sum(g y))``."""
    return (softmax_gradient(g, y, axis=axis),)


@defop("nnl::masked_softmax", save=("y",), precision="full")
@single_precision
def masked_softmax_operator(x: Array, *, axis: int = -1) -> Array:
    """Softmax that gives 0 where every element along the axis is minus infinity."""
    largest = x.max(axis, keepdims=True, initial=-np.inf)
    e = np.exp(x - np.where(np.isneginf(largest), 0, largest))
    total = e.sum(axis, keepdims=True)
    return np.asarray(e / np.where(total == 0, 1, total))


masked_softmax_operator.infer(_same)
masked_softmax_operator.vjp(softmax_vjp)


@masked_softmax_operator.samples
def masked_softmax_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """As softmax, and rows that are hidden in part and in whole."""
    yield from _samples(rng)
    x = rng.normal(size=(3, 4))
    x[0, 1:3] = x[2] = -np.inf
    yield Sample(x, axis=1)
    yield Sample(x, axis=0)


@defop("nnl::softmax_gradient", save=("g", "y"), outputs=("dx",), precision="full")
@single_precision
def softmax_gradient(g: Array, y: Array, *, axis: int = -1) -> Array:
    """``y (g - sum(g y))``, the gradient of softmax from its result; 0 where all ``g`` are 0."""
    d = g - np.where(g == 0, 0, g * y).sum(axis, keepdims=True)
    return np.where(d == 0, 0, y * d)


softmax_gradient.infer(_same)
softmax_gradient.samples(_gradient_samples)


@softmax_gradient.vjp
def softmax_gradient_vjp(h: Any, dx: Any, g: Any, y: Any, *, axis: int) -> tuple[Any, ...]:
    """``dg = y (h - sum(h y)), dy = h (g - sum(g y)) - g sum(h y)``."""
    along = F.sum(g * y, axis=axis, keepdims=True)
    dy = h * (g - along) - g * F.sum(h * y, axis=axis, keepdims=True)
    return softmax_gradient(h, y, axis=axis), dy


@defop("nnl::log_softmax", save=("y",), precision="full")
@single_precision
def log_softmax_operator(x: Array, *, axis: int = -1) -> Array:
    """``x - log(sum(exp(x)))`` along an axis."""
    s = shifted(x, axis)
    return np.asarray(s - np.log(np.exp(s).sum(axis, keepdims=True)))


log_softmax_operator.infer(_same)
log_softmax_operator.samples(_samples)


@log_softmax_operator.vjp
def log_softmax_vjp(g: Any, y: Any, x: Any, *, axis: int) -> tuple[Any, ...]:
    """``g - exp(y) sum(g)``."""
    return (log_softmax_gradient(g, y, axis=axis),)


@defop("nnl::log_softmax_gradient", save=("g", "y"), outputs=("dx",), precision="full")
@single_precision
def log_softmax_gradient(g: Array, y: Array, *, axis: int = -1) -> Array:
    """``g - exp(y) sum(g)``, the gradient of log_softmax; ``g`` where the sum is 0."""
    total = g.sum(axis, keepdims=True)
    return np.where(total == 0, g, g - np.exp(y) * total)


log_softmax_gradient.infer(_same)
log_softmax_gradient.samples(_gradient_samples)


@log_softmax_gradient.vjp
def log_softmax_gradient_vjp(h: Any, dx: Any, g: Any, y: Any, *, axis: int) -> tuple[Any, ...]:
    """``dg = h - sum(h exp(y)), dy = -h exp(y) sum(g)``."""
    weighted = h * F.exp(y)
    dg = h - F.sum(weighted, axis=axis, keepdims=True)
    return dg, -(weighted * F.sum(g, axis=axis, keepdims=True))


for _operator in (
    softmax_operator,
    masked_softmax_operator,
    softmax_gradient,
    log_softmax_operator,
    log_softmax_gradient,
):
    _operator.multiply_adds(lambda x, *others, axis: x.size)


# What users call ---------------------------------------------------------------------------------


def softmax(x: Operand, axis: int | None = None) -> Variable:
    """Turn numbers into shares that sum to 1: ``y = exp(x) / sum(exp(x))``.

    Finite for large ``x``; NaN where all of an axis are minus infinity (see `masked_softmax`).

    Args:
        x: any shape.
        axis: the axis that sums to 1; ``None`` for the last.

    Gradient:
        ``dx = y (dy - sum(y dy))``.

    Examples:
        >>> F.softmax(np.log(np.array([1.0, 3.0]))).d
        array([0.25, 0.75])

    Elsewhere:
        - nnabla: `softmax`
        - PyTorch: `torch.softmax`
        - ONNX: `Softmax`
    """
    return softmax_operator(floating(x), axis=-1 if axis is None else whole(axis, "axis"))


def log_softmax(x: Operand, axis: int | None = None) -> Variable:
    """Take the logarithm of the softmax: ``y = x - log(sum(exp(x)))``, finite for large ``x``.

    Args:
        x: any shape.
        axis: the axis of the sum; ``None`` for the last.

    Gradient:
        ``dx = dy - exp(y) sum(dy)``.

    Examples:
        >>> F.log_softmax(np.array([1000.0, 0.0])).d
        array([    0., -1000.])

    Elsewhere:
        - nnabla: `log_softmax`
        - PyTorch: `torch.log_softmax`
        - ONNX: `LogSoftmax`
    """
    return log_softmax_operator(floating(x), axis=-1 if axis is None else whole(axis, "axis"))


def masked_softmax(x: Operand, axis: int | None = None) -> Variable:
    """Take a softmax in which minus infinity hides an element.

    Where all along the axis are hidden the result is 0; softmax gives NaN there.

    Args:
        x: any shape.
        axis: the axis that sums to 1; ``None`` for the last.

    Gradient:
        As of `softmax`, and 0 where all are hidden.

    Examples:
        >>> F.masked_softmax(np.array([[-np.inf, 0.0], [-np.inf, -np.inf]])).d
        array([[0., 1.],
               [0., 0.]])

    Elsewhere:
        - nnabla: none, `softmax`, NaN in rows that are hidden
        - PyTorch: none, `torch.softmax`, NaN in rows that are hidden
        - ONNX: none, `Softmax` and `Where`
    """
    return masked_softmax_operator(floating(x), axis=-1 if axis is None else whole(axis, "axis"))
