"""Slices where a mask is not zero: taken, put, filled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, promote
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, unbroadcast
from nnl_core.operators.dtypes import holding
from nnl_core.operators.gathering import to_variable

__all__ = [
    "bool_fill",
    "bool_gather",
    "bool_scatter",
]


@defop("nnl::bool_gather", save=("mask",))
def bool_gather_operator(x: Array, mask: Array, *, count: int) -> Array:
    """Take the slices of ``x`` where the mask is not 0; there must be ``count`` of them."""
    return x[_checked_mask(mask, count, "bool_gather")]


@bool_gather_operator.infer
def bool_gather_infer(x: Spec, mask: Spec, *, count: int) -> Spec:
    """The count, then the axes of ``x`` that the mask does not have."""
    if x.shape[: mask.ndim] != mask.shape:
        raise ShapeError("the mask must have the first axes of the array")
    return x.with_shape((count, *x.shape[mask.ndim :]))


@bool_gather_operator.vjp
def bool_gather_vjp(g: Any, y: Any, x: Any, mask: Any, *, count: int) -> tuple[Any, ...]:
    """Put the gradients back."""
    return bool_scatter(g, mask), None


@bool_gather_operator.samples
def bool_gather_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Masks of one and two axes, of numbers, of nothing."""
    yield Sample(rng.normal(size=(4, 2)), np.array([True, False, True, True]), count=3)
    yield Sample(rng.normal(size=(2, 2)), np.array([[0.0, 2.0], [1.0, 0.0]]), count=2)
    yield Sample(rng.normal(size=(3, 2)), np.zeros(3, bool), count=0)


def bool_gather(input: Operand, mask: Operand) -> Variable:
    """Take the slices of ``input`` where a mask is set.

    Args:
        input: any shape but 0-d.
        mask: over its first axes; all but 0 is true. It is read now, as shapes are known before
            anything runs.

    Returns:
        ``(number of slices, *other axes)``.

    Raises:
        OperatorError: a later run finds another number of slices.

    Gradient:
        ``dy`` at the slices taken, 0 elsewhere.

    Examples:
        >>> F.bool_gather(np.array([1.0, 2.0, 3.0]), np.array([1, 0, 1])).d
        array([1., 3.])

    Elsewhere:
        - nnabla: `bool_gather`
        - PyTorch: `torch.masked_select`
        - ONNX: `Compress`
    """
    mask = to_variable(mask)
    return bool_gather_operator(input, mask, count=int(np.count_nonzero(mask.d)))


@defop("nnl::bool_scatter", save=("mask",))
def bool_scatter_operator(x: Array, mask: Array, base: Array | None = None) -> Array:
    """Put the slices of ``x``, in order, where the mask is not 0, into zeros or ``base``."""
    chosen = _checked_mask(mask, x.shape[0], "bool_scatter")
    dtype = x.dtype if base is None else promote(x.dtype, base.dtype)
    shape = (*mask.shape, *x.shape[1:])
    result = np.zeros(shape, dtype) if base is None else base.astype(dtype)
    result[chosen] = x
    return result


@bool_scatter_operator.infer
def bool_scatter_infer(x: Spec, mask: Spec, base: Spec | None) -> Spec:
    """The axes of the mask, then those of ``x`` but the first."""
    if not x.ndim:
        raise ShapeError("the input needs an axis that counts the slices")
    shape = (*mask.shape, *x.shape[1:])
    if base is not None and base.shape != shape:
        raise ShapeError(f"output must have shape {shape}")
    return Spec(shape, x.dtype if base is None else promote(x.dtype, base.dtype))


@bool_scatter_operator.vjp
def bool_scatter_vjp(g: Any, y: Any, x: Any, mask: Any, base: Any) -> tuple[Any, ...]:
    """Take the gradients where the mask is not 0; the base keeps the others."""
    taken = unbroadcast(bool_gather_operator(g, mask, count=x.shape[0]), x)
    if base is None:
        return taken, None, None
    mask = F.reshape(mask, (*mask.shape, *(1,) * (len(x.shape) - 1)))
    return taken, None, unbroadcast(bool_fill(g, mask, 0), base)


@bool_scatter_operator.samples
def bool_scatter_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Masks of one and two axes, onto a base, of nothing."""
    yield Sample(rng.normal(size=(3, 2)), np.array([True, False, True, True]), None)
    mask = np.array([[0.0, 2.0], [1.0, 0.0]])
    yield Sample(rng.normal(size=(2, 3)), mask, rng.normal(size=(2, 2, 3)))
    yield Sample(np.zeros((0, 2)), np.zeros(3, bool), None)


def bool_scatter(input: Operand, mask: Operand, output: Operand | None = None) -> Variable:
    """Put slices, in order, where a mask is set.

    Args:
        input: ``(number of slices, *other axes)``.
        mask: the first axes of the result; all but 0 is true.
        output: what the result holds elsewhere, and stays as it is; ``None`` for 0.

    Raises:
        OperatorError: when run, the mask does not choose as many places as there are slices.

    Gradient:
        Of ``input`` ``dy`` at its slices; of ``output`` elsewhere.

    Examples:
        >>> F.bool_scatter(np.array([5.0, 6.0]), np.array([1, 0, 1])).d
        array([5., 0., 6.])

    Elsewhere:
        - nnabla: `bool_scatter`
        - PyTorch: `torch.masked_scatter`
        - ONNX: none, `ScatterND` at `NonZero` of the mask
    """
    base = None if output is None else to_variable(output)
    return bool_scatter_operator(input, to_variable(mask), base)


def bool_fill(data: Operand, mask: Operand, value: float = 0) -> Variable:
    """Put a number where a mask is set.

    Args:
        data: any shape.
        mask: broadcasts to it; all but 0 is true.
        value: the number.

    Gradient:
        ``dy`` where the mask is not set, else 0.

    Examples:
        >>> F.bool_fill(np.array([1.0, 2.0]), np.array([0, 1]), -5.0).d
        array([ 1., -5.])

    Elsewhere:
        - nnabla: `bool_fill`
        - PyTorch: none, `data.masked_fill(mask, value)`
        - ONNX: `Where`
    """
    data, mask = holding(data, value), to_variable(mask)
    chosen = F.broadcast(cast(mask, bool), data.shape)
    filling = Variable.constant(np.asarray(value, data.dtype))
    return F.where(chosen, F.broadcast(filling, data.shape), data)


def _checked_mask(mask: Array, count: int, what: str) -> Array:
    chosen = mask != 0
    found = int(np.count_nonzero(chosen))
    if found != count:
        raise OperatorError(
            f"{what}: the mask chooses {found} places where {count} were expected; build the graph "
            "again for a mask with another number of them"
        )
    return chosen
