"""NumPy kernels of the arithmetic family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnl_core.cpu.kernels.rows import sums
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import promote_scalar
from nnl_core.operators import arithmetic as family

family.add_operator.kernel("numpy", np.add)
family.sub_operator.kernel("numpy", np.subtract)
family.mul_operator.kernel("numpy", np.multiply)
family.div_operator.kernel("numpy", np.true_divide)
family.pow_operator.kernel("numpy", family.power)


def _scalar(ufunc: Callable[..., Any], reverse: bool = False) -> Any:
    def kernel(x: Array, *, val: float, out: Array | None) -> Any:
        dtype = promote_scalar(x.dtype, val)
        x, number = x.astype(dtype, copy=False), dtype.type(val)
        return ufunc(number, x, out=out) if reverse else ufunc(x, number, out=out)

    return kernel


family.add_scalar_operator.kernel("numpy", _scalar(np.add))
family.mul_scalar_operator.kernel("numpy", _scalar(np.multiply))
family.r_sub_scalar_operator.kernel("numpy", _scalar(np.subtract, reverse=True))
family.r_div_scalar_operator.kernel("numpy", _scalar(np.true_divide, reverse=True))
family.r_pow_scalar_operator.kernel("numpy", _scalar(family.power, reverse=True))


def _pow_scalar(x: Array, *, val: float, out: Array | None) -> Any:
    dtype = promote_scalar(x.dtype, val)
    x = x.astype(dtype, copy=False)
    if val == 2:
        return np.multiply(x, x, out=out)
    return family.power(x, dtype.type(val), out)


family.pow_scalar_operator.kernel("numpy", _pow_scalar)


def _copy(x: Array, *, out: Array | None, **attributes: Any) -> Array:
    if out is None:
        return x.astype(attributes.get("dtype", x.dtype))
    np.copyto(out, x, casting="unsafe")
    return out


family.identity.kernel("numpy", _copy)
family.cast_operator.kernel("numpy", _copy)


def _sum_to(x: Array, *, shape: tuple[int, ...], out: Array | None) -> Array:
    if out is None:
        result: Array = family.sum_to.reference(x, shape=shape)
        return result
    return sums(x, family.repeated_axes(x.shape, shape), out)


family.sum_to.kernel("numpy", _sum_to)


def _broadcast_to(x: Array, *, shape: tuple[int, ...], out: Array | None) -> Array:
    if out is None:
        return np.broadcast_to(x, shape)
    np.copyto(out, x)
    return out


family.broadcast_to_operator.kernel("numpy", _broadcast_to)
