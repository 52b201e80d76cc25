"""NumPy kernels of the quantizers."""

from __future__ import annotations

import numpy as np

from nnl_core.graph.operator import Array
from nnl_core.operators import quantization as family
from nnl_core.operators import surrogates


def _copied(result: Array, out: Array | None) -> Array:
    if out is None:
        return result
    np.copyto(out, result)
    return out


def _straight_through(x: Array, value: Array, *, out: Array | None) -> Array:
    return value.copy() if out is None else _copied(value, out)


def _binary_sigmoid(x: Array, *, out: Array | None) -> Array:
    y = np.asarray(np.sign(x, out=out))  # np.heaviside is ten times slower
    np.maximum(y, 0, out=y)
    return y


def _binary_tanh(x: Array, *, out: Array | None) -> Array:
    y = _binary_sigmoid(x, out=out)
    np.multiply(y, 2, out=y)
    np.subtract(y, 1, out=y)
    return y


surrogates.straight_through.kernel("numpy", _straight_through)
family.binary_sigmoid_operator.kernel("numpy", _binary_sigmoid)
family.binary_tanh_operator.kernel("numpy", _binary_tanh)


def _round_away(x: Array) -> None:
    """Round an array in place as `half_away` does."""
    whole = np.trunc(x)
    np.subtract(x, whole, out=x)
    np.abs(x, out=x)
    np.greater_equal(x, 0.5, out=x, casting="unsafe")
    np.copysign(x, whole, out=x)
    np.add(x, whole, out=x)


def _fixed_point(
    x: Array, *, low: float, high: float, delta: float, fine: bool, out: Array | None
) -> Array:
    y = np.empty_like(x) if out is None else out
    number = x.dtype.type
    np.clip(x, number(low), number(high), out=y)
    np.divide(y, number(delta), out=y)
    _round_away(y)
    np.multiply(y, number(delta), out=y)
    return y


def _between(
    x: Array, low: Array, high: Array, scale: Array, *, fine: bool, out: Array | None
) -> Array:
    y = np.empty_like(x)  # not `out`, which may be one of the inputs
    np.clip(x, low, high, out=y)
    np.subtract(y, low, out=y)
    np.divide(y, scale, out=y)
    _round_away(y)
    np.multiply(y, scale, out=y)
    return np.add(y, low, out=y if out is None else out)


family.fixed_point_quantize_operator.kernel("numpy", _fixed_point)
family.quantize_between.kernel("numpy", _between)


def _prune(x: Array, *, rate: float, out: Array | None) -> Array:
    if rate == 1 or not x.size:
        return _copied(np.zeros_like(x), out)
    sizes = np.abs(x)
    position = family.prune_position(x.size, rate)
    threshold = np.partition(sizes, position, axis=None)[position]
    kept: Array = np.where(sizes < threshold, x.dtype.type(0), x)
    return _copied(kept, out)


family.prune_operator.kernel("numpy", _prune)
