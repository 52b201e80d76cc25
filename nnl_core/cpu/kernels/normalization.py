"""NumPy kernels of normalisation, a block at a time to stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from nnl_core.cpu.kernels.rows import sums
from nnl_core.graph.operator import Array
from nnl_core.operators import gradient_clipping
from nnl_core.operators import moments as family

Results = TypeVar("Results", bound=tuple[Array, ...])
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
        whole: tuple[Array, Array] = family.moments.reference(x, axes=axes)
        return _store(whole, out)
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    mean, variance = out or (np.empty(shape, x.dtype), np.empty(shape, x.dtype))
    count = math.prod(x.shape[axis] for axis in axes)
    if 0 not in axes:
        for block in _blocks(x):
            np.divide(sums(x[block], axes, mean[block]), count, out=mean[block])
            centred = np.subtract(x[block], mean[block])
            squares = sums(centred, axes, variance[block], times=centred)
            np.divide(squares, count, out=variance[block])
        return mean, variance
    total = np.zeros(shape)
    part = np.empty(shape, x.dtype)
    for block in _blocks(x):
        total += sums(x[block], axes, part)
    np.divide(total, count, out=mean, casting="same_kind")
    total.fill(0)
    for block in _blocks(x):
        centred = np.subtract(x[block], mean)
        total += sums(centred, axes, part, times=centred)
    np.divide(total, count, out=variance, casting="same_kind")
    return mean, variance


def _store(results: Results, out: Results | None) -> Results:
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


def _of(block: slice, value: Array, x: Array) -> Array:
    """Return what of a gain or shift, which broadcasts to ``x``, belongs to some examples."""
    return value[block] if value.ndim == x.ndim and len(value) == len(x) else value


def _standardize(
    x: Array, gamma: Array, beta: Array, *, axes: tuple[int, ...], eps: float,
    out: tuple[Array, ...] | None,
) -> tuple[Array, ...]:  # fmt: skip
    if not x.size or not x.ndim or 0 in axes:
        return _store(family.standardize.reference(x, gamma, beta, axes=axes, eps=eps), out)
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    y, mean, variance = out or (np.empty(size, x.dtype) for size in (x.shape, shape, shape))
    count = x.size // mean.size
    for block in _blocks(x):
        np.divide(sums(x[block], axes, mean[block]), count, out=mean[block])
        part = np.subtract(x[block], mean[block], out=y[block])
        np.divide(sums(part, axes, variance[block], times=part), count, out=variance[block])
        part *= 1 / np.sqrt(variance[block] + x.dtype.type(eps))
        if gamma.ndim or gamma != 1:
            part *= _of(block, gamma, x)
        if beta.ndim or beta != 0:
            part += _of(block, beta, x)
    return y, mean, variance


def _standardize_gradient(
    g: Array, x: Array, mean: Array, variance: Array, gamma: Array, *, axes: tuple[int, ...],
    eps: float, out: Array | None,
) -> Array:  # fmt: skip
    if not x.size or not x.ndim or 0 in axes:
        options = {"axes": axes, "eps": eps}
        whole = family.standardize_gradient.reference(g, x, mean, variance, gamma, **options)
        return np.asarray(np.positive(whole, out=out))
    result = np.empty(x.shape, x.dtype) if out is None else out
    count = x.size // mean.size
    for block in _blocks(x):
        inverse = 1 / np.sqrt(variance[block] + x.dtype.type(eps))
        centred = np.subtract(x[block], mean[block])
        dx = np.multiply(g[block], _of(block, gamma, x), out=result[block])
        along = sums(dx, axes, times=centred).reshape(mean[block].shape) * inverse**3 / count
        level = sums(dx, axes).reshape(mean[block].shape) * inverse / count
        dx *= inverse
        centred *= along
        dx -= centred
        dx -= level
    return result


def _first(x: Array, *rest: Array, out: Array | None, **attributes: object) -> Array:
    """Copy the first input."""
    if out is None:
        return x.copy()
    np.copyto(out, x)
    return out


family.moments.kernel("numpy", _moments)
family.normalize.kernel("numpy", _normalize)
family.standardize.kernel("numpy", _standardize)
family.standardize_gradient.kernel("numpy", _standardize_gradient)
gradient_clipping.clip_grad_by_value_operator.kernel("numpy", _first)
gradient_clipping.clip_grad_by_norm_operator.kernel("numpy", _first)
