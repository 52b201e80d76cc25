"""NumPy kernels of the reductions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from nnl_core.cpu.kernels.rows import sums
from nnl_core.graph.operator import Array, lookup
from nnl_core.graph.spec import Spec
from nnl_core.operators import reduction as family
from nnl_core.operators import spread
from nnl_core.operators.axes import count, reduced_spec


def _sum(x: Array, *, axes: tuple[int, ...], keepdims: bool, out: Array | None) -> Any:
    if out is not None and out.dtype == x.dtype:
        return sums(x, axes, out)
    if out is not None:
        return np.add.reduce(x, axis=axes, keepdims=keepdims, dtype=out.dtype, out=out)
    if x.dtype.kind == "f":
        return x.sum(axis=axes, keepdims=keepdims)
    return family.sum_operator.reference(x, axes=axes, keepdims=keepdims)


def _mean(x: Array, *, axes: tuple[int, ...], keepdims: bool, out: Array | None) -> Any:
    number = count(x.shape, axes)
    if number and out is not None:
        return np.divide(sums(x, axes, out), number, out=out)
    if number:
        return x.sum(axis=axes, keepdims=keepdims) / number
    return _copied(family.mean_operator.reference(x, axes=axes, keepdims=keepdims), out)


@functools.cache
def _least(dtype: np.dtype) -> float:
    """Return above which a sum has lost no power that counts to underflow."""
    limits = np.finfo(dtype)
    return float(limits.tiny / limits.eps)


def _norm(x: Array, *, p: float, axes: tuple[int, ...], keepdims: bool, out: Array | None) -> Any:
    """Without a scale, but where a sum of powers is out of range."""
    if out is None:
        out = np.empty(reduced_spec(Spec.of(x), axes, keepdims).shape, x.dtype)
    if p == 1:
        return sums(np.abs(x), axes, out)
    if p == 2:
        sums(x, axes, out, times=x)
    else:
        sums(np.abs(x) ** p, axes, out)
    within = (out > _least(x.dtype)) & (out < np.inf)
    y = np.sqrt(out, out=out) if p == 2 else np.power(out, 1 / p, out=out)
    if not within.all():
        scaled = spread.norm_operator.reference(x, p=p, axes=axes, keepdims=keepdims)
        np.copyto(y, scaled, where=~within)
    return y


def _copied(result: Any, out: Array | None) -> Any:
    if out is None:
        return result
    np.copyto(out, result)
    return out


def _extreme(ufunc: np.ufunc) -> Any:
    def kernel(x: Array, *, axes: tuple[int, ...], keepdims: bool, out: Array | None) -> Any:
        return ufunc.reduce(x, axis=axes, keepdims=keepdims, out=out)

    return kernel


family.sum_operator.kernel("numpy", _sum)
family.mean_operator.kernel("numpy", _mean)
spread.norm_operator.kernel("numpy", _norm)
lookup("nnl::max").kernel("numpy", _extreme(np.maximum))
lookup("nnl::min").kernel("numpy", _extreme(np.minimum))
