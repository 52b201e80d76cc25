"""NumPy kernel of einsum: two operands at a time, as matrix products where anything is summed."""

from __future__ import annotations

import math

import numpy as np

from nnl_core.cpu.kernels.linear import product
from nnl_core.graph.operator import Array
from nnl_core.operators.dtypes import sum_dtype
from nnl_core.operators.einsum import einsum_operator, plan_products


def _einsum(*xs: Array, equation: str, out: Array | None) -> Array:
    dtype = sum_dtype(xs[0].dtype)
    plan = plan_products(equation, tuple(x.shape for x in xs))
    terms, letters = plan.terms, list(plan.reduced)
    values = [
        _reduce(x.astype(dtype, copy=False), term, kept)
        for x, term, kept in zip(xs, terms.operands, letters, strict=True)
    ]
    for step in plan.contractions:
        left, right = ((values[n], letters[n]) for n in (step.left, step.right))
        values.append(_multiply(*left, *right, step.result))
        letters.append(step.result)
    result = values[-1].transpose([letters[-1].index(letter) for letter in terms.output])
    if out is None:
        return np.array(result, dtype)
    np.copyto(out, result, casting="unsafe")
    return out


def _reduce(x: Array, term: str, kept: str) -> Array:
    """Take diagonals and sum over the letters that are not kept."""
    return x if term == kept else np.asarray(np.einsum(f"{term}->{kept}", x))


def _multiply(a: Array, first: str, b: Array, second: str, result: str) -> Array:
    """Multiply, letters in the order shared, of the first, of the second; others are summed."""
    shared = [letter for letter in first if letter in second and letter in result]
    summed = [letter for letter in first if letter in second and letter not in result]
    rows = [letter for letter in first if letter not in second]
    columns = [letter for letter in second if letter not in first]
    left = a.transpose([first.index(letter) for letter in (*shared, *rows, *summed)])
    right = b.transpose([second.index(letter) for letter in (*shared, *summed, *columns)])
    batch, kept = left.shape[: len(shared)], len(shared) + len(rows)
    if not summed:
        spread = right.reshape((*batch, *(1,) * len(rows), *right.shape[len(shared) :]))
        return np.asarray(left.reshape((*left.shape, *(1,) * len(columns))) * spread)
    shape = (*left.shape[:kept], *right.shape[len(shared) + len(summed) :])
    count, inner = math.prod(batch), math.prod(left.shape[kept:])
    m = math.prod(left.shape[len(shared) : kept])
    n = math.prod(shape[kept:])
    matrices = left.reshape(count, m, inner), right.reshape(count, inner, n)
    return product(*matrices, None).reshape(shape)


einsum_operator.kernel("numpy", _einsum)
