"""NumPy kernels of the mathematical functions."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from nnl_core.cpu.kernels.blocks import flat_blocks
from nnl_core.graph.operator import Array, lookup
from nnl_core.operators import math as family

_UFUNCS: dict[str, np.ufunc] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "square": np.square,
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "atan2": np.arctan2,
}

for _name, _ufunc in _UFUNCS.items():
    lookup(f"nnl::{_name}").kernel("numpy", _ufunc)


def _round(x: Array, *, out: Array | None) -> Any:
    return np.round(x, out=out) if x.dtype.kind == "f" else np.maximum(x, x, out=out)


lookup("nnl::round").kernel("numpy", _round)


def _rsqrt(x: Array, *, out: Array | None) -> Any:
    root = np.sqrt(x, out=out)
    return np.divide(1, root, out=out)


lookup("nnl::rsqrt").kernel("numpy", _rsqrt)


ERF = (
    1.12837925, 0.102769864, -0.000195287993, -0.000614838393,
    8.45966455e-05, -4.79461751e-06, 2.75772419e-08, 5.42156217e-09,
)  # fmt: skip
"""``erf(x) = tanh(x p(x^2))`` up to 4, and 1 from there on: the factors of ``p``.

Found by least squares, weighted until the largest relative error, 7e-8, was the least possible.
"""


def _erf(x: Array, *, out: Array | None) -> Any:
    if x.dtype != np.float32:
        return np.positive(family.error_function(x), out=out)
    y = np.empty_like(x) if out is None else out
    *lower, highest = ERF
    for source, target in flat_blocks(x, y):
        size = np.clip(source, np.float32(-4), np.float32(4))
        square = size * size
        polynomial = square * np.float32(highest)
        for factor in lower[:0:-1]:
            polynomial += np.float32(factor)
            polynomial *= square
        polynomial += np.float32(lower[0])
        polynomial *= size
        np.tanh(polynomial, out=target)
    return y


family.erf_operator.kernel("numpy", _erf)


def _chain_rule(g: Array, d: Array, *, out: Array | None) -> Any:
    if isfinite(np.vdot(d, d)):  # then all of d is, and 0 times it is 0
        return np.multiply(g, d, out=out)
    zero = g == 0
    product = np.asarray(np.multiply(g, d, out=out))
    np.copyto(product, 0, where=zero)
    return product


family.chain_rule.kernel("numpy", _chain_rule)
