"""Arrays joined along an axis, and divided along one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis, promote
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import broadcast_to_operator, cast

__all__ = ["concatenate", "split", "stack"]


@defop("nnl::concatenate")
def concatenate_operator(*xs: Array, axis: int) -> Array:
    """Put arrays end to end along an axis that they have."""
    return np.concatenate(xs, axis, dtype=promote(*(x.dtype for x in xs)))


@concatenate_operator.infer
def concatenate_infer(*xs: Spec, axis: int) -> Spec:
    """Lengths along the axis add up; all others agree."""
    if not xs:
        raise ShapeError("there is nothing to concatenate")
    first = xs[0]
    axis = normalize_axis(axis, first.ndim)
    for x in xs:
        if x.ndim != first.ndim or any(
            n != m for at, (n, m) in enumerate(zip(x.shape, first.shape, strict=True)) if at != axis
        ):
            raise ShapeError(f"shapes may differ along axis {axis} only")
    total = sum(x.shape[axis] for x in xs)
    dtype = promote(*(x.dtype for x in xs))
    return Spec((*first.shape[:axis], total, *first.shape[axis + 1 :]), dtype)


@concatenate_operator.vjp
def concatenate_vjp(g: Any, y: Any, *xs: Any, axis: int) -> tuple[Any, ...]:
    """Cut the gradient apart."""
    axis = axis % g.ndim
    before = (slice(None),) * axis
    gradients, start = [], 0
    for x in xs:
        stop = start + x.shape[axis]
        gradients.append(_as_dtype(F.getitem(g, (*before, slice(start, stop))), x.dtype))
        start = stop
    return tuple(gradients)


@concatenate_operator.samples
def concatenate_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, one array, several, empty ones among them."""
    yield Sample(rng.normal(size=(2, 3)), rng.normal(size=(2, 4)), axis=1)
    yield Sample(*(rng.normal(size=(n, 2, 2)) for n in (1, 0, 3)), axis=-3)
    yield Sample(rng.normal(size=(3,)), axis=0)
    yield Sample(rng.normal(size=(0, 2)), rng.normal(size=(0, 1)), axis=-1)


def concatenate(*x: Operand, axis: int | None = None) -> Variable:
    """Put arrays end to end.

    Args:
        *x: arrays whose shapes differ along ``axis`` alone.
        axis: the axis to join; ``None`` for the last.

    Raises:
        ShapeError: another axis differs.

    Gradient:
        To each array its part of ``dy``.

    Examples:
        >>> F.concatenate(np.array([1.0, 2.0]), np.array([3.0])).d
        array([1., 2., 3.])

    Elsewhere:
        - nnabla: `concatenate`
        - PyTorch: `torch.cat`
        - ONNX: `Concat`
    """
    return concatenate_operator(*x, axis=-1 if axis is None else whole(axis, "axis"))


@defop("nnl::stack")
def stack_operator(*xs: Array, axis: int) -> Array:
    """Put arrays of one shape side by side along a new axis."""
    return np.stack(xs, axis, dtype=promote(*(x.dtype for x in xs)))


@stack_operator.infer
def stack_infer(*xs: Spec, axis: int) -> Spec:
    """A new axis as long as the arrays are many."""
    if not xs:
        raise ShapeError("there is nothing to stack")
    first = xs[0]
    if any(x.shape != first.shape for x in xs):
        raise ShapeError("all arrays must have one shape")
    axis = normalize_axis(axis, first.ndim + 1)
    dtype = promote(*(x.dtype for x in xs))
    return Spec((*first.shape[:axis], len(xs), *first.shape[axis:]), dtype)


@stack_operator.vjp
def stack_vjp(g: Any, y: Any, *xs: Any, axis: int) -> tuple[Any, ...]:
    """Divide the gradient."""
    parts = split(g, axis)
    return tuple(_as_dtype(part, x.dtype) for part, x in zip(parts, xs, strict=True))


@stack_operator.samples
def stack_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """First, inner and last axis, of 0-d, of one array, of empty."""
    for axis in (0, 1, -1):
        yield Sample(*(rng.normal(size=(2, 3)) for _ in range(3)), axis=axis)
    yield Sample(rng.normal(size=()), rng.normal(size=()), axis=0)
    yield Sample(rng.normal(size=(2,)), axis=1)
    yield Sample(rng.normal(size=(0, 2)), rng.normal(size=(0, 2)), axis=1)


def stack(*x: Operand, axis: int = 0) -> Variable:
    """Put arrays of one shape side by side along a new axis.

    Args:
        *x: the arrays.
        axis: where the new axis is in the result.

    Raises:
        ShapeError: the shapes differ.

    Gradient:
        To each array its part of ``dy``.

    Examples:
        >>> F.stack(np.array([1.0, 2.0]), np.array([3.0, 4.0]), axis=1).d
        array([[1., 3.],
               [2., 4.]])

    Elsewhere:
        - nnabla: `stack`
        - PyTorch: `torch.stack`
        - ONNX: none, `Concat` of `Unsqueeze`
    """
    return stack_operator(*x, axis=whole(axis, "axis"))


@defop("nnl::split", outputs=("*ys",))
def split_operator(x: Array, *, axis: int) -> tuple[Array, ...]:
    """Divide along an axis into as many arrays as it is long; the axis goes."""
    return tuple(part.copy() for part in np.moveaxis(x, axis, 0))


@split_operator.infer
def split_infer(x: Spec, *, axis: int) -> tuple[Spec, ...]:
    """The other axes, once for each position."""
    axis = normalize_axis(axis, x.ndim)
    part = x.with_shape((*x.shape[:axis], *x.shape[axis + 1 :]))
    return (part,) * x.shape[axis]


@split_operator.vjp
def split_vjp(g: Any, y: Any, x: Any, *, axis: int) -> tuple[Any, ...]:
    """Put the gradients side by side, zeros for parts that nobody used."""
    if not isinstance(g, tuple):
        return (F.expand_dims(g, axis),)
    zero = Variable.constant(np.zeros((), x.dtype))
    parts = [
        broadcast_to_operator(zero, shape=part.shape) if gradient is None else gradient
        for gradient, part in zip(g, y, strict=True)
    ]
    return (stack(*parts, axis=axis),)


@split_operator.samples
def split_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """First, inner and last axis, to 0-d, a single part, of empty."""
    for axis in (0, 1, -1):
        yield Sample(rng.normal(size=(2, 3, 4)), axis=axis)
    yield Sample(rng.normal(size=(3,)), axis=0)
    yield Sample(rng.normal(size=(2, 1)), axis=1)
    yield Sample(rng.normal(size=(2, 0)), axis=0)


def split(x: Operand, axis: int = 0) -> list[Variable]:
    """Divide ``x`` into as many arrays as it is long along ``axis``, which goes.

    Args:
        x: any shape but 0-d.
        axis: the axis to divide.

    Returns:
        A list of arrays.

    Gradient:
        The gradients of the parts, put side by side.

    Examples:
        >>> [part.d.tolist() for part in F.split(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=1)]
        [[1.0, 3.0], [2.0, 4.0]]

    Elsewhere:
        - nnabla: `split`
        - PyTorch: `torch.unbind`
        - ONNX: `Split`, followed by `Squeeze`
    """
    variable = x if isinstance(x, Variable) else Variable.constant(x)
    if variable.ndim and variable.shape[normalize_axis(axis, variable.ndim)] == 0:
        raise ShapeError(f"axis {axis} of shape {variable.shape} has length 0: no parts to return")
    parts = split_operator(variable, axis=whole(axis, "axis"))
    return [parts] if isinstance(parts, Variable) else list(parts)


def _as_dtype(g: Variable, dtype: np.dtype) -> Variable:
    return g if g.dtype == dtype else cast(g, dtype)
