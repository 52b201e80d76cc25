"""NumPy kernel of dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnl_core.graph.operator import Array
from nnl_core.operators import stochastic as family


def _dropout(x: Array, key: Array, *, p: float, out: Any) -> Any:
    if out is None:
        return family.dropout_operator.reference(x, key, p=p)
    y, mask = out
    numbers = family.generator_of(key).random(x.shape, np.float32)
    np.greater_equal(numbers, np.float32(p), out=mask)
    np.multiply(x, mask, out=y)
    np.multiply(y, x.dtype.type(1 / (1 - p)), out=y)
    return out


family.dropout_operator.kernel("numpy", _dropout)
