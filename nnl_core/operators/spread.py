"""Reductions that measure size and spread: norms, variance, log-sum-exp."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import real, whole
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.axes import (
    Axes,
    call_reduction,
    call_statistic,
    cost,
    count,
    kept,
    reduced_spec,
    reduction_samples,
    spread,
)
from nnl_core.operators.dtypes import floating, wide

__all__ = ["logsumexp", "norm", "std", "var"]


# Norms -------------------------------------------------------------------------------------------


@defop("nnl::norm", save=("x", "y"), precision="full")
def norm_operator(
    x: Array, *, p: float = 2.0, axes: tuple[int, ...], keepdims: bool = False
) -> Array:
    """``(sum |x|^p)^(1/p)`` over axes, of parts of the greatest, so that no power overflows."""
    size = np.abs(wide(x))
    top = np.max(size, axis=axes, keepdims=True, initial=0)
    scale = np.where((top == 0) | np.isinf(top), 1, top).astype(size.dtype)
    total = np.sum((size / scale) ** p, axis=axes, keepdims=True)
    y = scale * total ** (1 / p)
    return np.asarray(y if keepdims else y.reshape(_rest(x, axes)), x.dtype)


@norm_operator.infer
def norm_infer(x: Spec, *, p: float, axes: tuple[int, ...], keepdims: bool) -> Spec:
    """Without the axes, or with length 1 along them."""
    return reduced_spec(x, axes, keepdims)


@norm_operator.vjp
def norm_vjp(
    g: Any, y: Any, x: Any, *, p: float, axes: tuple[int, ...], keepdims: bool
) -> tuple[Any, ...]:
    """``dx = g sign(x) (|x| / y)^(p - 1)``, 0 where ``y`` is 0."""
    g, y = spread(g, x, axes), kept(y, x, axes)
    length = F.where(y == 0, 1.0, y)
    if p == 1:
        return (F.times_sign(g, x),)
    if p == 2:
        return (F.chain_rule(g, x / length),)
    return (F.times_sign(F.chain_rule(g, (F.abs(x) / length) ** (p - 1)), x),)


@norm_operator.samples
def norm_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Several powers, away from 0."""
    yield from reduction_samples(0.5, 2.0)(rng)
    for p in (1.0, 3.0, 1.5):
        yield from itertools.islice(reduction_samples(0.5, 2.0, p=p)(rng), 2)
    yield Sample(rng.uniform(-2, -0.5, size=(3, 4)), axes=(1,), p=1.5)


norm_operator.multiply_adds(cost)


def norm(x: Operand, p: float | None = None, axis: Axes = None, keepdims: bool = False) -> Variable:
    """Compute ``y = (sum |x| ** p) ** (1 / p)`` over axes.

    Args:
        x: any shape.
        p: positive; 2 by default; infinity gives the greatest magnitude.
        axis: one axis or several; ``None`` for all.
        keepdims: whether reduced axes stay, of length 1.

    Raises:
        OperatorError: ``p`` is not positive.

    Gradient:
        ``dx = sign(x) (|x| / y) ** (p - 1) dy``; 0 where the norm is 0.

    Examples:
        >>> F.norm(np.array([3.0, -4.0])).d
        array(5.)

    Elsewhere:
        - nnabla: `norm`
        - PyTorch: `torch.linalg.vector_norm`
        - ONNX: `ReduceL2` or `ReduceL1`
    """
    power = 2.0 if p is None else real(p, "p")
    if not power > 0:
        raise OperatorError(f"norm: p is {p}; it must be positive")
    if math.isinf(power):
        result: Variable = F.max(F.abs(floating(x)), axis, keepdims)
        return result
    return call_reduction(norm_operator, floating(x), axis, keepdims, p=power)


# Variance ----------------------------------------------------------------------------------------


def _variance(x: Array, axes: tuple[int, ...], keepdims: bool, ddof: int) -> Any:
    """Compute the mean first, then the mean square of what differs from it."""
    number = count(x.shape, axes)
    centered = x - np.sum(x, axis=axes, keepdims=True) / (number or np.nan)
    total = np.sum(np.square(centered), axis=axes, keepdims=keepdims)
    return total / (number - ddof if number else np.nan)


@defop("nnl::var", save=("x",), precision="full")
def var_operator(
    x: Array, *, ddof: int = 0, axes: tuple[int, ...], keepdims: bool = False
) -> Array:
    """Variance over axes, in two passes; that of nothing is NaN."""
    return np.asarray(_variance(wide(x), axes, keepdims, ddof), x.dtype)


@defop("nnl::std", save=("x", "y"), precision="full")
def std_operator(
    x: Array, *, ddof: int = 0, axes: tuple[int, ...], keepdims: bool = False
) -> Array:
    """Standard deviation over axes, in two passes; that of nothing is NaN."""
    return np.asarray(np.sqrt(_variance(wide(x), axes, keepdims, ddof)), x.dtype)


@var_operator.infer
@std_operator.infer
def var_infer(x: Spec, *, ddof: int, axes: tuple[int, ...], keepdims: bool) -> Spec:
    """Without the axes, or with length 1 along them."""
    number = count(x.shape, axes)
    if number and ddof >= number:
        raise ShapeError(f"ddof {ddof} leaves nothing of {number} elements to divide by")
    return reduced_spec(x, axes, keepdims)


def _slope(x: Any, axes: tuple[int, ...], ddof: int) -> Any:
    """Return ``(x - mean) / (n - ddof)``."""
    freedom = count(x.shape, axes) - ddof
    return (x - F.mean(x, axes, keepdims=True)) * (1.0 / (freedom or 1))


@var_operator.vjp
def var_vjp(
    g: Any, y: Any, x: Any, *, ddof: int, axes: tuple[int, ...], keepdims: bool
) -> tuple[Any, ...]:
    """``dx = 2 g (x - mean) / (n - ddof)``."""
    return (F.chain_rule(spread(g, x, axes), _slope(x, axes, ddof)) * 2.0,)


@std_operator.vjp
def std_vjp(
    g: Any, y: Any, x: Any, *, ddof: int, axes: tuple[int, ...], keepdims: bool
) -> tuple[Any, ...]:
    """``dx = g (x - mean) / ((n - ddof) y)``, 0 where ``y`` is 0."""
    y = kept(y, x, axes)
    slope = _slope(x, axes, ddof) / F.where(y == 0, 1.0, y)
    return (F.chain_rule(spread(g, x, axes), slope),)


@var_operator.samples
@std_operator.samples
def var_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Whole and sample variance."""
    for sample in reduction_samples(-2, 2)(rng):
        if sample.attributes["axes"]:  # one element has no spread, and no slope of it
            yield sample
    yield Sample(rng.normal(size=(3, 5)), axes=(1,), ddof=1)
    yield Sample(rng.normal(size=(2, 3, 2)), axes=(0, 2), ddof=1, keepdims=True)


var_operator.multiply_adds(cost)
std_operator.multiply_adds(cost)


def var(x: Operand, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Variable:
    """Take the variance over axes, in two passes: the mean first.

    Args:
        x: any shape.
        axis: one axis or several; ``None`` for all.
        keepdims: whether reduced axes stay, of length 1.
        ddof: squares are divided by ``n - ddof``.

    Gradient:
        ``dx = 2 (x - mean) / (n - ddof) dy``.

    Examples:
        >>> F.var(np.array([1.0, 3.0, 5.0, 7.0])).d
        array(5.)

    Elsewhere:
        - nnabla: none, a mean of squares
        - PyTorch: `torch.var`, whose `correction` is 1 by default
        - ONNX: none, `ReduceMean`, `Sub` and `Mul`
    """
    return call_statistic(var_operator, x, axis, keepdims, ddof=whole(ddof, "ddof"))


def std(x: Operand, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Variable:
    """Take the standard deviation over axes: the root of `var`.

    Args:
        x: any shape.
        axis: one axis or several; ``None`` for all.
        keepdims: whether reduced axes stay, of length 1.
        ddof: squares are divided by ``n - ddof``.

    Gradient:
        ``dx = (x - mean) / ((n - ddof) y) dy``; 0 where ``y`` is 0.

    Examples:
        >>> F.std(np.array([1.0, 3.0, 5.0, 7.0])).d
        array(2.23606798)

    Elsewhere:
        - nnabla: none, the root of a mean of squares
        - PyTorch: `torch.std`, whose `correction` is 1 by default
        - ONNX: none, `ReduceMean`, `Sub`, `Mul` and `Sqrt`
    """
    return call_statistic(std_operator, x, axis, keepdims, ddof=whole(ddof, "ddof"))


# Log-sum-exp -------------------------------------------------------------------------------------


@defop("nnl::logsumexp", save=("x", "y"), precision="full")
def logsumexp_operator(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """``log(sum(exp(x)))`` over axes, finite for any finite ``x``; that of nothing is ``-inf``."""
    real = wide(x)
    top = np.max(real, axis=axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0).astype(real.dtype)
    total = np.sum(np.exp(real - top), axis=axes, keepdims=True)
    result = top + np.log(total)
    return np.asarray(result if keepdims else result.reshape(_rest(x, axes)), x.dtype)


def _rest(x: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for axis, n in enumerate(x.shape) if axis not in axes)


@logsumexp_operator.infer
def logsumexp_infer(x: Spec, *, axes: tuple[int, ...], keepdims: bool) -> Spec:
    """Without the axes, or with length 1 along them."""
    return reduced_spec(x, axes, keepdims)


@logsumexp_operator.vjp
def logsumexp_vjp(
    g: Any, y: Any, x: Any, *, axes: tuple[int, ...], keepdims: bool
) -> tuple[Any, ...]:
    """``dx = g exp(x - y)``, the softmax: divided by its sum, as ``y`` is rounded."""
    y = kept(y, x, axes)
    largest = float(np.finfo(x.dtype).max)  # an infinity less itself would be no number
    share = F.exp(F.minimum_scalar(x, largest) - F.clip(y, -largest, largest))
    total = F.sum(share, axes, keepdims=True)
    return (F.chain_rule(spread(g, x, axes), share / F.where(total == 0, 1.0, total)),)


logsumexp_operator.samples(reduction_samples(-3, 3))
logsumexp_operator.multiply_adds(cost)


def logsumexp(x: Operand, axis: Axes = None, keepdims: bool = False) -> Variable:
    """Compute ``y = log(sum(exp(x)))`` over axes, without overflow.

    Args:
        x: any shape.
        axis: one axis or several; ``None`` for all.
        keepdims: whether reduced axes stay, of length 1.

    Gradient:
        ``dx = exp(x - y) dy``; infinite elements share it equally.

    Examples:
        >>> F.logsumexp(np.array([1000.0, 1000.0])).d
        array(1000.69314718)

    Elsewhere:
        - nnabla: none, `F.log(F.sum(F.exp(x)))`, which overflows
        - PyTorch: `torch.logsumexp`
        - ONNX: `ReduceLogSumExp`
    """
    return call_reduction(logsumexp_operator, floating(x), axis, keepdims)
