"""NumPy kernels of cumulative sums and products: straight into planned memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnl_core.graph.operator import Array
from nnl_core.operators import scan as family
from nnl_core.operators.dtypes import sum_dtype


def _along(x: Array, axis: int, reverse: bool) -> Array:
    moved = np.moveaxis(x, axis, -1)
    return moved[..., ::-1] if reverse else moved


def _scan(ufunc: np.ufunc) -> Any:
    def kernel(x: Array, *, axis: int, exclusive: bool, reverse: bool, out: Array | None) -> Array:
        y = np.empty(x.shape, sum_dtype(x.dtype)) if out is None else out
        source, target = _along(x, axis, reverse), _along(y, axis, reverse)
        if exclusive:
            target[..., :1] = ufunc.identity
            source, target = source[..., :-1], target[..., 1:]
        ufunc.accumulate(source, axis=-1, dtype=y.dtype, out=target)
        return y

    return kernel


family.cumsum_operator.kernel("numpy", _scan(np.add))
family.cumprod_operator.kernel("numpy", _scan(np.multiply))
