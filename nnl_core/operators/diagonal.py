"""Matrices by their diagonals and triangles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core.errors import ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable

__all__ = ["eye_like", "matrix_diag", "matrix_diag_part", "trilu"]


@defop("nnl::matrix_diag")
def matrix_diag(x: Array) -> Array:
    """Make matrices with the last axis of ``x`` on the diagonal, and zeros elsewhere.

    Args:
        x: (..., n); the result is (..., n, n).

    Gradient:
        The diagonal of ``dy``.

    Examples:
        >>> F.matrix_diag(np.array([1.0, 2.0])).d
        array([[1., 0.],
               [0., 2.]])

    Elsewhere:
        - nnabla: `matrix_diag`
        - PyTorch: `torch.diag_embed`
        - ONNX: none, `Mul` with `EyeLike`
    """
    size = x.shape[-1]
    result = np.zeros((*x.shape, size), x.dtype)
    result[..., np.arange(size), np.arange(size)] = x
    return result


@matrix_diag.infer
def matrix_diag_infer(x: Spec) -> Spec:
    """The last axis twice."""
    if not x.ndim:
        raise ShapeError("a diagonal needs an axis")
    return x.with_shape((*x.shape, x.shape[-1]))


@matrix_diag.vjp
def matrix_diag_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """The diagonal of the gradient."""
    return (matrix_diag_part(g),)


@matrix_diag.samples
def matrix_diag_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One matrix, several, 1 by 1, empty."""
    for shape in ((3,), (2, 4), (2, 3, 1), (2, 0)):
        yield Sample(rng.normal(size=shape))


@defop("nnl::matrix_diag_part")
def matrix_diag_part(x: Array) -> Array:
    """Return the diagonals of square matrices.

    Args:
        x: (..., n, n); the result is (..., n).

    Gradient:
        ``dy`` on the diagonal, 0 elsewhere.

    Examples:
        >>> F.matrix_diag_part(np.array([[1.0, 5.0], [6.0, 2.0]])).d
        array([1., 2.])

    Elsewhere:
        - nnabla: `matrix_diag_part`
        - PyTorch: `torch.diagonal`, of the last two axes
        - ONNX: none, `ReduceSum` of a product with `EyeLike`
    """
    return np.diagonal(x, axis1=-2, axis2=-1).copy()


@matrix_diag_part.infer
def matrix_diag_part_infer(x: Spec) -> Spec:
    """The last axis once."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError("the last two axes must be square matrices")
    return x.with_shape(x.shape[:-1])


@matrix_diag_part.vjp
def matrix_diag_part_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """The gradient on the diagonal."""
    return (matrix_diag(g),)


@matrix_diag_part.samples
def matrix_diag_part_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One matrix, several, 1 by 1, empty."""
    for shape in ((3, 3), (2, 4, 4), (2, 1, 1), (2, 0, 0)):
        yield Sample(rng.normal(size=shape))


@defop("nnl::trilu")
def trilu_operator(x: Array, *, k: int = 0, upper: bool = True) -> Array:
    """Keep the triangle of the last two axes that begins (or ends) at diagonal ``k``."""
    return np.triu(x, k) if upper else np.tril(x, k)


@trilu_operator.infer
def trilu_infer(x: Spec, *, k: int, upper: bool) -> Spec:
    """The input's shape."""
    if x.ndim < 2:
        raise ShapeError("the input must have at least two axes")
    return x


@trilu_operator.vjp
def trilu_vjp(g: Any, y: Any, x: Any, *, k: int, upper: bool) -> tuple[Any, ...]:
    """The same triangle of the gradient."""
    return (trilu(g, k, upper),)


@trilu_operator.samples
def trilu_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both triangles, at, above, below and beyond the diagonal, not square, empty."""
    for upper in (False, True):
        for k in (-1, 0, 2, 9):
            yield Sample(rng.normal(size=(3, 4)), k=k, upper=upper)
        yield Sample(rng.normal(size=(2, 3, 2)), upper=upper)
        yield Sample(rng.normal(size=(0, 3)), upper=upper)


def trilu(x: Operand, k: int = 0, upper: bool = True) -> Variable:
    """Keep of each matrix the elements on one side of a diagonal, and 0 on the other.

    Args:
        x: (..., rows, columns).
        k: which diagonal: 0 for the main one, positive above, negative below.
        upper: whether those on and above it are kept, or those on and below.

    Gradient:
        The same part of ``dy``.

    Examples:
        >>> F.trilu(np.array([[1.0, 2.0], [3.0, 4.0]]), upper=False).d
        array([[1., 0.],
               [3., 4.]])

    Elsewhere:
        - nnabla: `trilu`
        - PyTorch: `torch.triu` or `torch.tril`
        - ONNX: `Trilu`
    """
    return trilu_operator(x, k=whole(k, "k"), upper=bool(upper))


@defop("nnl::eye_like")
def eye_like_operator(x: Array, *, k: int = 0) -> Array:
    """Return matrices shaped like ``x``, with ones on diagonal ``k`` and zeros elsewhere."""
    return np.broadcast_to(np.eye(x.shape[-2], x.shape[-1], k, x.dtype), x.shape).copy()


@eye_like_operator.infer
def eye_like_infer(x: Spec, *, k: int) -> Spec:
    """The input's shape."""
    if x.ndim < 2:
        raise ShapeError("the input must have at least two axes")
    return x


@eye_like_operator.vjp
def eye_like_vjp(g: Any, y: Any, x: Any, *, k: int) -> tuple[Any, ...]:
    """The result does not depend on the elements."""
    return (None,)


@eye_like_operator.samples
def eye_like_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Diagonals on both sides and outside, not square, several, empty."""
    for k in (0, 1, -2, 9):
        yield Sample(rng.normal(size=(3, 4)), k=k)
    yield Sample(rng.normal(size=(2, 3, 3)))
    yield Sample(rng.normal(size=(0, 3)))


def eye_like(x: Operand, k: int = 0) -> Variable:
    """Return matrices shaped like ``x``, with ones on a diagonal and zeros elsewhere.

    Args:
        x: (..., rows, columns).
        k: which diagonal: 0 for the main one, positive above, negative below.

    Gradient:
        None: the result does not depend on the values.

    Examples:
        >>> F.eye_like(np.zeros((2, 3)), k=1).d
        array([[0., 1., 0.],
               [0., 0., 1.]])

    Elsewhere:
        - nnabla: `eye_like`
        - PyTorch: `torch.eye`, of sizes
        - ONNX: `EyeLike`
    """
    return eye_like_operator(x, k=whole(k, "k"))
