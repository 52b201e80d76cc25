"""Square matrices in the last two axes: inverse, determinant, Cholesky factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, single_precision

__all__ = ["batch_cholesky", "batch_det", "batch_inv", "batch_logdet"]


def _check(x: Spec) -> None:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError("the last two axes must be square matrices")


def _matrices_infer(x: Spec, **attributes: Any) -> Spec:
    _check(x)
    return x


def _numbers_infer(x: Spec) -> Spec:
    _check(x)
    return x.with_shape(x.shape[:-2])


def _cost(x: Spec, **attributes: Any) -> int:
    return x.size * x.shape[-1]


def _matrices(rng: np.random.Generator, *shape: int) -> Array:
    """Well-conditioned matrices: no element decides alone, no eigenvalue is near 0."""
    return rng.uniform(-0.5, 0.5, size=shape) + 1.5 * np.eye(shape[-1])


def _samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One matrix, several, batches of batches, 1 by 1, no matrices, matrices without elements."""
    for shape in ((3, 3), (2, 4, 4), (2, 2, 2, 2), (3, 1, 1), (0, 3, 3), (2, 0, 0)):
        yield Sample(_matrices(rng, *shape))


def _transpose(x: Variable) -> Variable:
    result: Variable = F.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return result


def _each(name: str, what: str, function: Callable[[Array], Array], x: Array) -> Array:
    """Apply a function that LAPACK gives up on; name the matrix it gives up on.

    A matrix with an element that is not finite has no result to speak of: it gives NaN.
    """
    finite = np.isfinite(x).all(axis=(-2, -1), keepdims=True)
    given = np.where(finite, x, np.eye(x.shape[-1], dtype=x.dtype))
    try:
        result = function(given)
    except np.linalg.LinAlgError:
        for place in np.ndindex(x.shape[:-2]):
            try:
                function(given[place])
            except np.linalg.LinAlgError:
                where = f"matrix {place}" if place else "the matrix"
                raise OperatorError(f"{name}: {where} is {what}") from None
        raise
    return np.where(finite, result, x.dtype.type(np.nan))


# Inverse -----------------------------------------------------------------------------------------


@defop("nnl::batch_inv", save=("y",), precision="full")
@single_precision
def batch_inv_operator(x: Array) -> Array:
    """Inverse of each matrix."""
    what = "singular: it has no inverse; add a small multiple of the identity"
    return _each("batch_inv", what, np.linalg.inv, x)


@batch_inv_operator.vjp
def batch_inv_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``dx = -y^T g y^T``."""
    inner = F.batch_matmul(y, g, transpose_a=True)
    return (-F.batch_matmul(inner, y, transpose_b=True),)


def batch_inv(x: Operand) -> Variable:
    """Invert each matrix: ``y x = x y = 1``.

    Any number of axes may come before those of the matrices. ``float16`` is computed in
    ``float32``. A matrix with an element that is not finite gives NaN.

    Args:
        x: ``(..., n, n)``; integers become ``float32``.

    Returns:
        The shape of ``x``.

    Raises:
        ShapeError: the last two axes differ in length.
        OperatorError: when run, a matrix is singular; the message gives its place.

    Gradient:
        ``dx = -y^T g y^T``.

    Examples:
        >>> F.batch_inv(np.array([[[2.0, 0.0], [0.0, 4.0]]])).d
        array([[[0.5 , 0.  ],
                [0.  , 0.25]]])

    Elsewhere:
        - nnabla: `batch_inv`, exactly one axis before the matrices; infinite where singular
        - PyTorch: `torch.linalg.inv`
        - ONNX: none, exporters solve beforehand or write the elimination out
    """
    return batch_inv_operator(floating(x))


# Determinant -------------------------------------------------------------------------------------


@defop("nnl::batch_cofactor", save=("x",), precision="full")
@single_precision
def batch_cofactor(x: Array) -> Array:
    """Cofactors of each matrix: ``det(x) x^-T`` where ``x`` is regular, and its limit elsewhere.

    By the singular values: ``x = u s v`` has the cofactors ``det(u v) u c v``, where ``c`` are the
    products of all other singular values.
    """
    finite = np.isfinite(x).all(axis=(-2, -1), keepdims=True)
    u, s, v = np.linalg.svd(np.where(finite, x, 0))
    ones = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], -1), -1)[..., : s.shape[-1]]
    behind = np.cumprod(np.concatenate([ones, s[..., :0:-1]], -1), -1)[..., : s.shape[-1]]
    others = before * behind[..., ::-1]
    sign = np.linalg.det(u) * np.linalg.det(v)
    cofactors = sign[..., None, None] * ((u * others[..., None, :]) @ v)
    return np.where(finite, cofactors, x.dtype.type(np.nan))


@batch_cofactor.vjp
def batch_cofactor_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``dx = <g, z> c - c g^T z`` for ``c = det(x) z`` and ``z = x^-T``: regular ``x`` alone."""
    z = _transpose(batch_inv_operator(x))
    c = batch_cofactor(x)
    along = F.sum(g * z, axis=(-2, -1), keepdims=True) * c
    return (along - F.batch_matmul(F.batch_matmul(c, g, transpose_b=True), z),)


@defop("nnl::batch_det", save=("x",), precision="full")
@single_precision
def batch_det_operator(x: Array) -> Array:
    """Determinant of each matrix."""
    return np.asarray(np.linalg.det(x))


@batch_det_operator.vjp
def batch_det_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """The cofactors, times ``g``."""
    return (F.reshape(g, (*g.shape, 1, 1)) * batch_cofactor(x),)


@defop("nnl::batch_logdet", save=("x",), precision="full")
@single_precision
def batch_logdet_operator(x: Array) -> Array:
    """Logarithm of the magnitude of each determinant."""
    return np.asarray(np.linalg.slogdet(x).logabsdet)


@batch_logdet_operator.vjp
def batch_logdet_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``dx = g x^-T``."""
    return (F.reshape(g, (*g.shape, 1, 1)) * _transpose(batch_inv_operator(x)),)


def batch_det(x: Operand) -> Variable:
    """Return the determinant of each matrix; 0 where it is singular, 1 where it is 0 by 0.

    Any number of axes may come before those of the matrices. ``float16`` is computed in
    ``float32``.

    Args:
        x: ``(..., n, n)``; integers become ``float32``.

    Returns:
        ``(...)``.

    Raises:
        ShapeError: the last two axes differ in length.

    Gradient:
        The cofactors of ``x``, also where it is singular; the second gradient exists where it is
        regular, and raises `OperatorError` elsewhere.

    Examples:
        >>> F.batch_det(np.array([[[2.0, 3.0], [1.0, 4.0]]])).d
        array([5.])

    Elsewhere:
        - nnabla: `batch_det`, exactly one axis before the matrices; its gradient is NaN where
          singular
        - PyTorch: `torch.linalg.det`
        - ONNX: `Det`
    """
    return batch_det_operator(floating(x))


def batch_logdet(x: Operand) -> Variable:
    """Return ``log |det(x)|`` of each matrix, which neither over- nor underflows.

    ``-inf`` where a matrix is singular. Any number of axes may come before those of the matrices.
    ``float16`` is computed in ``float32``.

    Args:
        x: ``(..., n, n)``; integers become ``float32``.

    Returns:
        ``(...)``.

    Raises:
        ShapeError: the last two axes differ in length.

    Gradient:
        ``x^-T``; it raises `OperatorError` where a matrix is singular.

    Examples:
        >>> F.batch_logdet(np.array([[[0.0, 1.0], [1.0, 0.0]]])).d
        array([0.])

    Elsewhere:
        - nnabla: `batch_logdet`, exactly one axis before the matrices
        - PyTorch: `torch.linalg.slogdet`, the second output
        - ONNX: none, `Log` of `Abs` of `Det`
    """
    return batch_logdet_operator(floating(x))


# Cholesky ----------------------------------------------------------------------------------------


@defop("nnl::batch_cholesky", save=("y",), precision="full")
@single_precision
def batch_cholesky_operator(x: Array, *, upper: bool = False) -> Array:
    """Triangular factor of the symmetric part of each matrix."""
    symmetric = (x + np.swapaxes(x, -1, -2)) / 2
    what = "not positive definite: it has no Cholesky factor; add a multiple of the identity"
    lower = _each("batch_cholesky", what, np.linalg.cholesky, symmetric)
    return np.swapaxes(lower, -1, -2).copy() if upper else lower


@batch_cholesky_operator.vjp
def batch_cholesky_vjp(g: Any, y: Any, x: Any, *, upper: bool) -> tuple[Any, ...]:
    """``s = z^T h(y^T g) z`` for ``z = y^-1``, made symmetric (Murray 2016).

    ``h`` takes the lower triangle with half of the diagonal.
    """
    lower, slope = (_transpose(y), _transpose(g)) if upper else (y, g)
    size = x.shape[-1]
    half = np.tril(np.ones((size, size), x.dtype)) - np.eye(size, dtype=x.dtype) / 2
    middle = F.batch_matmul(lower, slope, transpose_a=True) * Variable.constant(half)
    inverse = batch_inv_operator(lower)
    sides = F.batch_matmul(F.batch_matmul(inverse, middle, transpose_a=True), inverse)
    return ((sides + _transpose(sides)) * 0.5,)


@batch_cholesky_operator.samples
def batch_cholesky_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both triangles of positive definite matrices, one that is not symmetric."""
    for upper in (False, True):
        for shape in ((3, 3), (2, 4, 4), (3, 1, 1), (0, 3, 3), (2, 0, 0)):
            x = _matrices(rng, *shape)
            yield Sample(x @ np.swapaxes(x, -1, -2), upper=upper)
        yield Sample(np.array([[4.0, 1.0], [3.0, 5.0]]), upper=upper)


def batch_cholesky(x: Operand, upper: bool = False) -> Variable:
    """Return the lower triangular ``y`` with ``x = y y^T`` and positive diagonal, of each matrix.

    ``x`` is symmetric and positive definite; of one that is not symmetric, the symmetric part is
    factored, so that the gradient is symmetric. Any number of axes may come before those of the
    matrices. ``float16`` is computed in ``float32``. A matrix with an element that is not finite
    gives NaN.

    Args:
        x: ``(..., n, n)``; integers become ``float32``.
        upper: return the upper triangular ``y`` with ``x = y^T y``.

    Returns:
        The shape of ``x``.

    Raises:
        ShapeError: the last two axes differ in length.
        OperatorError: when run, a matrix is not positive definite; the message gives its place.

    Gradient:
        Symmetric (Murray 2016, https://arxiv.org/abs/1602.07527).

    Examples:
        >>> F.batch_cholesky(np.array([[[4.0, 2.0], [2.0, 5.0]]])).d
        array([[[2., 0.],
                [1., 2.]]])

    Elsewhere:
        - nnabla: `batch_cholesky`, which reads one triangle alone and does not say where it fails
        - PyTorch: `torch.linalg.cholesky`, reads the lower triangle alone
        - ONNX: none, exporters write the factorisation out
    """
    return batch_cholesky_operator(floating(x), upper=bool(upper))


for _operator in (batch_inv_operator, batch_cofactor, batch_cholesky_operator):
    _operator.infer(_matrices_infer)
    _operator.multiply_adds(_cost)
for _operator in (batch_det_operator, batch_logdet_operator):
    _operator.infer(_numbers_infer)
    _operator.multiply_adds(_cost)
for _operator in (batch_inv_operator, batch_cofactor, batch_det_operator, batch_logdet_operator):
    _operator.samples(_samples)
