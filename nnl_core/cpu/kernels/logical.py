"""NumPy kernels of comparisons, logic and choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnl_core.cpu.kernels.select import choose
from nnl_core.graph.operator import Array, lookup
from nnl_core.graph.spec import promote_scalar

_UFUNCS: dict[str, np.ufunc] = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


def _with_number(ufunc: np.ufunc) -> Any:
    def kernel(x0: Array, *, val: float, out: Array | None) -> Any:
        return ufunc(x0, val, out=out)

    return kernel


for _name, _ufunc in _UFUNCS.items():
    lookup(f"nnl::{_name}").kernel("numpy", _ufunc)
    lookup(f"nnl::{_name}_scalar").kernel("numpy", _with_number(_ufunc))

_TESTS: dict[str, np.ufunc] = {
    "logical_not": np.logical_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "maximum2": np.maximum,
    "minimum2": np.minimum,
}
for _name, _ufunc in _TESTS.items():
    lookup(f"nnl::{_name}").kernel("numpy", _ufunc)


def _bounded(ufunc: np.ufunc) -> Any:
    def kernel(x: Array, *, val: float, out: Array | None) -> Any:
        dtype = promote_scalar(x.dtype, val)
        return ufunc(x.astype(dtype, copy=False), dtype.type(val), out=out)

    return kernel


lookup("nnl::maximum_scalar").kernel("numpy", _bounded(np.maximum))
lookup("nnl::minimum_scalar").kernel("numpy", _bounded(np.minimum))


def _where(condition: Array, x_true: Array, x_false: Array, *, out: Array | None) -> Array:
    if x_true.dtype != x_false.dtype or x_true.dtype.kind != "f":
        chosen = np.where(condition != 0, x_true, x_false)
        if out is None:
            return chosen
        np.copyto(out, chosen)
        return out
    mask = condition if condition.dtype == bool else np.not_equal(condition, 0)
    if not mask.shape == x_true.shape == x_false.shape:
        mask, x_true, x_false = np.broadcast_arrays(mask, x_true, x_false)
    return choose(mask, x_true, x_false, out)


lookup("nnl::where").kernel("numpy", _where)
