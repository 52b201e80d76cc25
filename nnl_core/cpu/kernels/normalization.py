"""NumPy kernels of normalisation, a block at a time to stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from nnl_core.cpu.kernels.rows import sums
from nnl_core.graph.operator import Array
from nnl_core.operators import gradient_clipping
from nnl_core.operators import normalization as family

BLOCK_BYTES = 1 << 18


def _blocks(x: Array) -> Iterator[slice]:
    """Yield ranges of the first axis."""
    step = max(1, BLOCK_BYTES // max(1, x[:1].nbytes))
    for start in range(0, x.shape[0], step):
        yield slice(start, min(x.shape[0], start + step))


def _moments(
    x: Array, *, axes: tuple[int, ...], out: tuple[Array, Array] | None
) -> tuple[Array, Array]:
    if not x.ndim or not x.size:
        return _store(family.moments.reference(x, axes=axes), out)
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    mean, variance = out or (np.empty(shape, x.dtype), np.empty(shape, x.dtype))
    count = math.prod(x.shape[axis] for axis in axes)
    if 0 not in axes:
        for block in _blocks(x):
            np.divide(sums(x[block], axes, mean[block]), count, out=mean[block])
            centred = np.subtract(x[block], mean[block])
            np.divide(
                sums(centred, axes, variance[block], squares=True), count, out=variance[block]
            )
        return mean, variance
    total = np.zeros(shape)
    part = np.empty(shape, x.dtype)
    for block in _blocks(x):
        total += sums(x[block], axes, part)
    np.divide(total, count, out=mean, casting="same_kind")
    total.fill(0)
    for block in _blocks(x):
        total += sums(np.subtract(x[block], mean), axes, part, squares=True)
    np.divide(total, count, out=variance, casting="same_kind")
    return mean, variance


def _store(results: tuple[Array, Array], out: tuple[Array, Array] | None) -> tuple[Array, Array]:
    if out is None:
        return results
    for target, result in zip(out, results, strict=True):
        np.copyto(target, result)
    return out


def _normalize(
    x: Array, mean: Array, variance: Array, gamma: Array, beta: Array, *, eps: float,
    out: Array | None,
) -> Array:  # fmt: skip
    whole = any(value.shape == x.shape for value in (mean, variance, gamma, beta))
    if whole:  # ``out`` may be the memory of an input as large
        result: Array = family.normalize.reference(x, mean, variance, gamma, beta, eps=eps)
        if out is None:
            return result
        np.copyto(out, result)
        return out
    scale = 1 / np.sqrt(variance + x.dtype.type(eps))
    if gamma.shape == scale.shape or not gamma.ndim:
        scale, gain = scale * gamma, None
    else:
        gain = gamma
    y: Array = np.subtract(x, mean, out=out)
    y = np.multiply(y, scale, out=out)
    if gain is not None:
        y = np.multiply(y, gain, out=out)
    if beta.ndim or beta != 0:
        y = np.add(y, beta, out=out)
    return y


def _first(x: Array, *rest: Array, out: Array | None, **attributes: object) -> Array:
    """Copy the first input."""
    if out is None:
        return x.copy()
    np.copyto(out, x)
    return out


family.moments.kernel("numpy", _moments)
family.normalize.kernel("numpy", _normalize)
gradient_clipping.clip_grad_by_value_operator.kernel("numpy", _first)
gradient_clipping.clip_grad_by_norm_operator.kernel("numpy", _first)
