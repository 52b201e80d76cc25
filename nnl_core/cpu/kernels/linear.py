"""NumPy kernels of matrix products: operands laid out so that BLAS takes them."""

from __future__ import annotations

import math

import numpy as np

from nnl_core.cpu import threads
from nnl_core.graph.operator import Array
from nnl_core.operators import linear as family
from nnl_core.operators.dtypes import sum_dtype


def product(a: Array, b: Array, out: Array | None) -> Array:
    """``a @ b`` into ``out``; integers by way of a wider dtype."""
    if a.dtype.char in "fd":  # what BLAS computes in
        return threads.product(_for_blas(a), _for_blas(b), out)
    dtype = sum_dtype(a.dtype)
    left, right = (_for_blas(x.astype(dtype, copy=False)) for x in (a, b))
    return threads.product(left, right, out)


def _for_blas(x: Array) -> Array:
    """Copy matrices that BLAS cannot read, such as broadcast or strided ones.

    NumPy would multiply them element by element.
    """
    size, (row, column) = x.itemsize, x.strides[-2:]
    rows, columns = x.shape[-2:]
    if (column == size and row >= columns * size) or (row == size and column >= rows * size):
        return x
    return np.ascontiguousarray(x)


def _flat(out: Array | None, rows: int, columns: int) -> Array | None:
    return None if out is None else np.reshape(out, (rows, columns), copy=False)


def _batch_matmul(
    a: Array, b: Array, *, transpose_a: bool, transpose_b: bool, out: Array | None
) -> Array:
    right = np.swapaxes(b, -1, -2) if transpose_b else b
    if transpose_a:
        return product(np.swapaxes(a, -1, -2), right, out)
    if a.ndim > 2 and math.prod(b.shape[:-2]) == 1 and b.ndim <= a.ndim:
        # One matrix for the whole batch: one large product in place of many small ones.
        shape = (*a.shape[:-1], right.shape[-1])
        rows = math.prod(a.shape[:-1])
        matrix = right.reshape(right.shape[-2:])
        flat = product(a.reshape(rows, a.shape[-1]), matrix, _flat(out, rows, shape[-1]))
        return flat.reshape(shape)
    return product(a, right, out)


def _affine(
    x: Array, weight: Array, bias: Array | None, *, base_axis: int, out: Array | None
) -> Array:
    if x.ndim == weight.ndim == 2 and base_axis in (1, -1):
        result = product(x, weight, out)
        return result if bias is None else np.add(result, bias, out=result)
    batch = x.shape[: base_axis % x.ndim]
    inputs, outputs = weight.shape[0], weight.shape[1:]
    rows, columns = math.prod(batch), math.prod(outputs)
    flat = product(
        x.reshape(rows, inputs), weight.reshape(inputs, columns), _flat(out, rows, columns)
    )
    if bias is not None:
        np.add(flat, bias.reshape(columns), out=flat)
    return flat.reshape(batch + outputs)


family.batch_matmul_operator.kernel("numpy", _batch_matmul)
family.affine_operator.kernel("numpy", _affine)
