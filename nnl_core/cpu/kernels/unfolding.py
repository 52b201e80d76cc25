"""NumPy kernels of windows as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnl_core.graph.operator import Array
from nnl_core.operators import unfolding as family


def _unfold(x: Array, *, out: Array | None, **options: Any) -> Array:
    if out is None:
        result: Array = family.unfold_operator.reference(x, **options)
        return result
    view = family.columns(x, **options)
    np.copyto(out.reshape(view.shape), view)
    return out


family.unfold_operator.kernel("numpy", _unfold)
