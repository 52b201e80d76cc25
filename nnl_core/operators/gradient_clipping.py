"""Functions that are the identity, and clip the gradient on its way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.checks import real
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, broadcast_shapes, normalize_axes
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast
from nnl_core.operators.dtypes import floating

__all__ = ["clip_grad_by_norm", "clip_grad_by_value"]


@defop("nnl::clip_grad_by_value", save=("low", "high"))
def clip_grad_by_value_operator(x: Array, low: Array, high: Array) -> Array:
    """Return ``x``; its gradient is limited to ``low`` ... ``high``."""
    return x.copy()


clip_grad_by_value_operator.elementwise("x")


@clip_grad_by_value_operator.infer
def clip_grad_by_value_infer(x: Spec, low: Spec, high: Spec) -> Spec:
    """That of the input."""
    for spec in (low, high):
        if broadcast_shapes(spec.shape, x.shape) != x.shape:
            raise ShapeError(f"a limit of shape {spec.shape} does not broadcast to {x.shape}")
    return x


@clip_grad_by_value_operator.vjp(surrogate=True)
def clip_grad_by_value_vjp(g: Any, y: Any, x: Any, low: Any, high: Any) -> tuple[Any, ...]:
    """``high`` where ``g`` is above it, else ``low`` where it is below that, else ``g``."""
    return F.where(g > high, high, F.where(g < low, low, g)), None, None


@clip_grad_by_value_operator.samples
def clip_grad_by_value_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Limits per element and for all, 0-d, empty."""
    for shape, limits in [((2, 3), (2, 3)), ((2, 3), ()), ((), ()), ((0, 3), (3,))]:
        low = rng.uniform(-1, -0.5, size=limits)
        yield Sample(rng.normal(size=shape), low, low + 1)


@defop("nnl::clip_grad_by_norm", precision="full")
def clip_grad_by_norm_operator(
    x: Array, *, clip_norm: float, axes: tuple[int, ...] | None = None
) -> Array:
    """Return ``x``; its gradient is scaled to the norm ``clip_norm`` over ``axes``."""
    return x.copy()


clip_grad_by_norm_operator.elementwise("x")


@clip_grad_by_norm_operator.vjp(surrogate=True)
def clip_grad_by_norm_vjp(
    g: Any, y: Any, x: Any, *, clip_norm: float, axes: tuple[int, ...] | None
) -> tuple[Any, ...]:
    """``clip_norm g / |g|``, and 0 where the norm is."""
    over = normalize_axes(axes, len(g.shape))
    squares = F.sum(g * g, axis=over, keepdims=True) if over else g * g
    return (g * clip_norm / F.where(squares == 0, 1.0, squares) ** 0.5,)


@clip_grad_by_norm_operator.samples
def clip_grad_by_norm_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """All, some and no axes, empty."""
    for shape, axes in [((2, 3), None), ((2, 3, 4), (0, 2)), ((3, 2), ()), ((0, 3), (0,))]:
        yield Sample(rng.normal(size=shape), clip_norm=2.0, axes=axes)


def clip_grad_by_value(x: Operand, min: Operand, max: Operand) -> Variable:
    """Return ``x``, and limit its gradient element by element.

    Args:
        x: any shape.
        min: the least gradient: a number, or what broadcasts to ``x``.
        max: the greatest.

    Gradient:
        ``dx = min(max(dy, min), max)``: a surrogate.

    Examples:
        >>> x = Variable.from_numpy_array(np.zeros(2), need_grad=True)
        >>> F.clip_grad_by_value(x, -1.0, 1.0).backward(np.array([5.0, 0.5]))
        >>> x.g
        array([1. , 0.5])

    Elsewhere:
        - nnabla: `clip_grad_by_value`
        - PyTorch: none, a hook `x.register_hook(lambda g: g.clamp(min, max))`
        - ONNX: none, training alone
    """
    data = floating(x)
    low, high = (floating(np.asarray(v, data.dtype) if np.isscalar(v) else v) for v in (min, max))
    low, high = (v if v.dtype == data.dtype else cast(v, data.dtype) for v in (low, high))
    return clip_grad_by_value_operator(data, low, high)


def clip_grad_by_norm(
    x: Operand, clip_norm: float | None = None, axes: int | Sequence[int] | None = None
) -> Variable:
    """Return ``x``, and scale its gradient to a norm.

    Args:
        x: any shape.
        clip_norm: the norm; 1 by default.
        axes: the axes of the norm; ``None`` for all, none for each element alone.

    Gradient:
        ``dx = clip_norm dy / |dy|``, 0 where ``dy`` is 0: a surrogate. Scaled up, too.

    Examples:
        >>> x = Variable.from_numpy_array(np.zeros(2), need_grad=True)
        >>> F.clip_grad_by_norm(x, 1.0).backward(np.array([3.0, 4.0]))
        >>> x.g
        array([0.6, 0.8])

    Elsewhere:
        - nnabla: `clip_grad_by_norm`
        - PyTorch: none, a hook on x
        - ONNX: none, training alone
    """
    data = floating(x)
    over = (
        axes
        if axes is None
        else normalize_axes(axes if isinstance(axes, int) else tuple(axes), data.ndim)
    )
    norm = 1.0 if clip_norm is None else real(clip_norm, "clip_norm")
    return clip_grad_by_norm_operator(data, clip_norm=norm, axes=over)
