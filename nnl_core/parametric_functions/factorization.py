"""Matrices and tensors as products of few factors, in NumPy."""

from __future__ import annotations

import functools

import numpy as np

from nnl_core import random
from nnl_core.errors import ParameterError
from nnl_core.graph.operator import Array
from nnl_core.initializers import RandomSource


def low_rank(matrix: Array, rank: int) -> tuple[Array, Array]:
    """Return the product of two matrices, stacks of them, that is nearest to a matrix.

    ``(..., m, n)`` becomes ``(..., m, rank)``, which has the singular values, and
    ``(..., rank, n)``, in ``float64``.
    """
    left, values, right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    return left[..., :rank] * values[..., None, :rank], right[..., :rank, :]


def cp_decomposition(
    tensor: Array,
    rank: int,
    *,
    max_iter: int = 500,
    stopping_criterion: float = 1e-5,
    lambda_reg: float = 0.0,
    rng: RandomSource | None = None,
) -> list[Array]:
    """Approximate a tensor by a sum of ``rank`` outer products, by alternating least squares.

    Returns one matrix ``(length, rank)`` for each axis, in ``float64``; ``tensor[i, j, k]`` is
    about ``sum_r a[i, r] b[j, r] c[k, r]``. Columns have length 1, but those of the first matrix.
    (Kolda and Bader, SIAM Review 51, 2009, section 3.4.)

    Parameters
    ----------
    max_iter
        number of passes over all axes, at most
    stopping_criterion
        passes end when the explained part of the squared norm changes by less; if negative, never
    lambda_reg
        weight of the squared norm of the matrix that is solved for
    rng
        what the start is drawn from; by default what ``nnl.seed`` sets

    Raises `ParameterError` where rank or ``max_iter`` are less than 1.
    """
    if rank < 1 or max_iter < 1:
        raise ParameterError(f"rank {rank} and max_iter {max_iter} must be at least 1")
    x = tensor.astype(np.float64)
    generator = random.prng if rng is None else rng
    factors = [generator.normal(size=(length, rank)) for length in x.shape]
    norm = float((x**2).sum())
    scale = np.ones(rank)
    explained = None
    for _ in range(max_iter):
        for axis in range(x.ndim):
            others = factors[:axis] + factors[axis + 1 :]
            gram = functools.reduce(np.multiply, (other.T @ other for other in others))
            projected = _unfolded(x, axis) @ functools.reduce(_khatri_rao, others)
            solved = projected @ np.linalg.pinv(gram + lambda_reg * np.eye(rank), hermitian=True)
            scale = np.linalg.norm(solved, axis=0)
            factors[axis] = solved / np.where(scale == 0, 1, scale)
        if stopping_criterion < 0:
            continue
        residual = norm - 2 * (solved * projected).sum() + ((solved.T @ solved) * gram).sum()
        before, explained = explained, 1 - residual / norm if norm else 1.0
        if before is not None and abs(explained - before) < stopping_criterion:
            break
    factors[0] = factors[0] * scale
    return factors


def _unfolded(x: Array, axis: int) -> Array:
    """Return a matrix of an axis and all others, in order."""
    return np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)


def _khatri_rao(first: Array, second: Array) -> Array:
    """Return the product of all pairs of rows, column by column."""
    return np.einsum("ir,jr->ijr", first, second).reshape(-1, first.shape[1])
